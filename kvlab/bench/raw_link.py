"""What a TCP connection of this host carries without kvlab and Dask: two processes, one sending to the other.

Both kinds read into memory that is new each time, as whoever keeps what arrives must, and digest nothing while the clock
runs. Before it runs, as much memory is touched and given back: a virtual machine's host may have taken it meanwhile.

stream
    Tornado's IOStream on both ends, which is what Dask's connections are made of.
socket
    A plain blocking socket on both ends: the most that Python gets out of this host.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from typing import Any, Literal, Self

import numpy as np
import xxhash

from kvlab.errors import TransferFailed

Kind = Literal["stream", "socket"]

_PIECE = 1 << 20
_GO = b"g"


class RawLink:
    """A sending and a receiving process, joined by a connection of one kind on loopback. Ends them on close."""

    def __init__(self, kind: Kind, nbytes: int) -> None:
        self.kind, self.nbytes = kind, nbytes
        self._receiver = subprocess.Popen(  # noqa: S603 - our own command line
            _command(kind, nbytes), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def carry(self) -> tuple[float, str]:
        """Seconds from asking the sender to having all its bytes, and their xxh3-64, which is taken afterwards.

        Raises
        ------
        TransferFailed
            When one of the two processes has ended.
        """
        asked, answers = self._receiver.stdin, self._receiver.stdout
        assert asked is not None
        assert answers is not None
        try:
            asked.write("\n")
            asked.flush()
            answer = answers.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise TransferFailed(
                f"the receiver of the raw {self.kind} ended with status {self._receiver.poll()}",
                hint="standard error has what it said; it needs memory for the bytes in each of two processes",
            )
        told = json.loads(answer)
        return float(told["seconds"]), str(told["checksum"])

    def close(self) -> None:
        """End both processes."""
        self._receiver.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def what_is_sent(nbytes: int) -> bytearray:
    """The bytes every sender sends: always the same, and all written, so that their pages are there."""
    piece = random.Random(nbytes).randbytes(_PIECE)  # noqa: S311 - content, not a secret
    return bytearray((piece * (nbytes // _PIECE + 1))[:nbytes])


def _command(kind: Kind, nbytes: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "kvlab.bench.raw_link", kind, str(nbytes), *more]


def _receive(kind: Kind, nbytes: int) -> None:
    """Serve one line of standard input after the other with one line of JSON, until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = subprocess.Popen(_command(kind, nbytes, "--to", str(listening.getsockname()[1])))  # noqa: S603
        try:
            connection, _ = listening.accept()
            with connection:
                if kind == "socket":
                    _receive_by_socket(connection, nbytes)
                else:
                    asyncio.run(_receive_by_stream(connection, nbytes))
        finally:
            sender.wait()


def _receive_by_socket(connection: socket.socket, nbytes: int) -> None:
    while sys.stdin.readline():
        _touch(nbytes)
        began = time.perf_counter()
        buffer = _new(nbytes)
        connection.sendall(_GO)
        got = 0
        while got < len(buffer):
            more = connection.recv_into(buffer[got:])
            if not more:
                raise EOFError("the sender is gone")
            got += more
        _answer(time.perf_counter() - began, buffer)
        del buffer


async def _receive_by_stream(connection: socket.socket, nbytes: int) -> None:
    stream = _stream(connection)
    while sys.stdin.readline():
        _touch(nbytes)
        began = time.perf_counter()
        buffer = _new(nbytes)
        await stream.write(_GO)
        await stream.read_into(buffer)
        _answer(time.perf_counter() - began, buffer)
        del buffer
    stream.close()


def _new(nbytes: int) -> memoryview:
    """Memory as Dask takes it for what it receives."""
    return np.empty(nbytes, dtype=np.uint8).data


def _touch(nbytes: int) -> None:
    np.ones(nbytes, dtype=np.uint8)


def _answer(seconds: float, buffer: memoryview) -> None:
    sys.stdout.write(json.dumps({"seconds": seconds, "checksum": xxhash.xxh3_64_hexdigest(buffer)}) + "\n")
    sys.stdout.flush()


def _send(kind: Kind, nbytes: int, port: int) -> None:
    sent = memoryview(what_is_sent(nbytes))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        if kind == "stream":
            asyncio.run(_send_by_stream(connection, sent))
            return
        while connection.recv(1):
            connection.sendall(sent)


async def _send_by_stream(connection: socket.socket, sent: memoryview) -> None:
    from tornado.iostream import StreamClosedError

    stream = _stream(connection)
    while True:
        try:
            await stream.read_bytes(1)
        except StreamClosedError:
            return
        await stream.write(sent)


def _stream(connection: socket.socket) -> Any:
    """An IOStream with the settings that Dask gives its own."""
    from distributed.comm.tcp import MAX_BUFFER_SIZE
    from tornado.iostream import IOStream

    connection.setblocking(False)  # noqa: FBT003 - the socket module's own
    stream = IOStream(connection, max_buffer_size=MAX_BUFFER_SIZE)
    stream.set_nodelay(True)
    return stream


def main() -> None:
    """One of the two processes."""
    parser = argparse.ArgumentParser(prog="python -m kvlab.bench.raw_link", description=__doc__)
    parser.add_argument("kind", choices=("stream", "socket"))
    parser.add_argument("nbytes", type=int)
    parser.add_argument("--to", type=int, metavar="PORT", help="send to this port; without it, receive and time")
    chosen = parser.parse_args()
    if chosen.to is None:
        _receive(chosen.kind, chosen.nbytes)
    else:
        _send(chosen.kind, chosen.nbytes, chosen.to)


if __name__ == "__main__":
    main()
