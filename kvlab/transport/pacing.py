"""Links with a rate and a latency on one host: real TCP frames between workers, plain or in TLS, held back by the sender.

Bytes on the wire are paced, never the finished result: a message leaves chunk by chunk, each when the link would have
carried it. A rate holds for a pair of sender and receiver, so every connection to one worker shares one :class:`Pacer`.
Only workers that announce themselves in the handshake are paced; scheduler and clients are not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from distributed.comm import registry
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import (
    TCP,
    TLS,
    BaseTCPBackend,
    TCPConnector,
    TCPListener,
    TLSConnector,
    TLSListener,
    _add_frames_header,
    convert_stream_closed_error,
)
from distributed.comm.utils import to_frames
from distributed.utils import ensure_memoryview
from tornado.iostream import IOStream, StreamClosedError

from kvlab.transport.link_pace import LinkPace

HANDSHAKE_KEY = "kvlab-worker"
CHUNK_SECONDS = 0.01
"""A chunk is about so much of a link's time: below what a person could notice, and so long that waking for it costs little."""
MOST_CHUNK_BYTES = 256 << 10
LEAST_CHUNK_BYTES = 1448
"""What a TCP segment on Ethernet carries; slower links do not split it either."""
CATCH_UP_SECONDS = 0.5
"""An event loop that wakes late by less makes up for it. A receiver that did not read for longer has lost that time."""


class Pacer:
    """The link to one worker: when bytes to it may leave. Reads no clock; times are seconds of any monotonic one."""

    def __init__(self, pace: LinkPace) -> None:
        self.pace = pace
        self.chunk_bytes = int(min(MOST_CHUNK_BYTES, max(LEAST_CHUNK_BYTES, pace.bytes_per_second * CHUNK_SECONDS)))
        self._free_at = float("-inf")

    def departure(self, nbytes: int, begun: float, now: float) -> float:
        """Reserve the link for ``nbytes`` of a message that may use it since ``begun``: when its last byte has left.

        Chunks follow each other without a gap, also if ``now`` is later than the last one's departure, so a sender that
        wakes late keeps the rate. No message uses time from before it began, so none is ever faster than the link.
        """
        start = max(self._free_at, begun, now - CATCH_UP_SECONDS)
        self._free_at = start + nbytes / self.pace.bytes_per_second
        return self._free_at


class Links:
    """The paced links of this process, by the name of the worker at the other end."""

    def __init__(self, pace: LinkPace) -> None:
        self.pace = pace
        self.own_name: str | None = None
        self._pacers: dict[str, Pacer] = {}

    def to(self, peer: Any) -> Pacer | None:
        """The link to the worker that announced itself as ``peer``; None if the peer announced nothing."""
        return self._pacers.setdefault(peer, Pacer(self.pace)) if isinstance(peer, str) else None


class PacedTCP(TCP):
    """Dask's TCP, whose messages to other workers leave at the pace of their link."""

    def __init__(self, links: Links, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._links = links
        self._writing = asyncio.Lock()

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """As ``TCP.write``, but it returns when the last byte was handed to the kernel, and so when its time has passed."""
        pacer = self._links.to(self.remote_info.get(HANDSHAKE_KEY))
        if pacer is None:
            return int(await super().write(msg, serializers=serializers, on_error=on_error))
        if self.stream is None:
            raise CommClosedError
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options},
            frame_split_size=self.max_shard_size,
        )
        frames, _, nbytes = _add_frames_header(frames)
        # Dask queues a whole message at once; this one takes its time, and another must not come in between.
        async with self._writing:
            stream = self.stream
            if stream is None:
                raise CommClosedError
            try:
                await _send(stream, frames, pacer)
            except StreamClosedError as error:
                self.stream = None
                self._closed = True
                convert_stream_closed_error(self, error)
            except BaseException:
                # Also when cancelled: a part of the message may have left, so the connection is of no use any more.
                self.abort()
                raise
        return int(nbytes)


class PacedTLS(PacedTCP, TLS):
    """The same in TLS: what is paced are the bytes that are then encrypted, which adds 22 to every 16 KiB."""


async def _send(stream: IOStream, frames: Sequence[Any], pacer: Pacer) -> None:
    # Waited for before the link is asked: other messages use it meanwhile.
    begun = time.monotonic() + pacer.pace.latency_seconds
    await asyncio.sleep(pacer.pace.latency_seconds)
    for frame in frames:
        view = ensure_memoryview(frame)
        for start in range(0, view.nbytes, pacer.chunk_bytes):
            chunk = view[start : start + pacer.chunk_bytes]
            now = time.monotonic()
            # Zero when catching up; it still lets the event loop do other things.
            await asyncio.sleep(max(0.0, pacer.departure(chunk.nbytes, begun, now) - now))
            # A receiver that does not read holds the sender up here, as on any link.
            await stream.write(chunk)


class _Connects:
    """Opens paced connections."""

    paced: type[PacedTCP]
    comm_class: Any

    def __init__(self, links: Links) -> None:
        self.comm_class = partial(self.paced, links)


class _Listens:
    """Accepts paced connections."""

    paced: type[PacedTCP]
    comm_class: Any

    def __init__(self, links: Links, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.comm_class = partial(self.paced, links)
        self._links = links

    async def on_connection(self, comm: Any, handshake_overrides: dict[str, Any] | None = None) -> None:
        """Shake hands, and say who this is: Dask's ``connection_args`` only reach the connections a worker opens."""
        own = {HANDSHAKE_KEY: self._links.own_name} if self._links.own_name else {}
        parent: Any = super()
        await parent.on_connection(comm, {**(handshake_overrides or {}), **own})


class _PlainConnector(_Connects, TCPConnector):
    paced = PacedTCP


class _PlainListener(_Listens, TCPListener):
    paced = PacedTCP


class _TLSConnector(_Connects, TLSConnector):
    paced = PacedTLS


class _TLSListener(_Listens, TLSListener):
    paced = PacedTLS


class PacedBackend(BaseTCPBackend):
    """Makes connectors and listeners, plain ones or for TLS, with the same links."""

    def __init__(self, links: Links, *, encrypted: bool = False) -> None:
        self.links = links
        self._connector = _TLSConnector if encrypted else _PlainConnector
        self._listener = _TLSListener if encrypted else _PlainListener

    def get_connector(self) -> Any:
        """For connections from here."""
        return self._connector(self.links)

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **connection_args: Any) -> Any:  # noqa: FBT001 - as Dask calls it
        """For connections to here."""
        return self._listener(self.links, loc, handle_comm, deserialize, **connection_args)


def install(pace: LinkPace) -> None:
    """Pace this process's links. Changes Dask's registry, which a server asks when it is made: call it before."""
    links = Links(pace)
    registry.backends["tcp"] = PacedBackend(links)
    registry.backends["tls"] = PacedBackend(links, encrypted=True)


def installed_pace() -> LinkPace | None:
    """The pace of this process's links; None if they are as fast as they can be."""
    backend = registry.backends.get("tcp")
    return backend.links.pace if isinstance(backend, PacedBackend) else None


def announce(server: Any) -> None:
    """Let ``server`` (a Dask worker) say its name in all its handshakes, if this process's links are paced."""
    backend = registry.backends.get("tcp")
    if isinstance(backend, PacedBackend):
        backend.links.own_name = str(server.name)
        server.connection_args.setdefault("handshake_overrides", {})[HANDSHAKE_KEY] = str(server.name)
