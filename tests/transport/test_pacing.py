"""Real Dask comms on loopback: when bytes arrive, who shares a link, and what ends a message that is on its way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from distributed.comm.core import CommClosedError, connect

from kvlab.errors import InvalidInput
from kvlab.runtime.certificates import temporary
from kvlab.transport.link_pace import LinkPace, parse_pace
from kvlab.transport.pacing import CATCH_UP_SECONDS, HANDSHAKE_KEY, LEAST_CHUNK_BYTES, Links, PacedBackend, Pacer

RATE = 2e6  # bytes a second: 16 Mbit/s
PACE = LinkPace(RATE)
CHUNK = Pacer(PACE).chunk_bytes
PAYLOAD = 400_000


@pytest.mark.parametrize(
    ("rate", "latency", "expected"),
    [
        ("120 Mbit/s", "2 ms", LinkPace(15e6, 0.002)),
        ("1Gbit/s", None, LinkPace(125e6)),
        ("64 kbit/s", "0.5 s", LinkPace(8e3, 0.5)),
        ("8e3 bit/s", 0, LinkPace(1e3)),
        (120e6, 0.002, LinkPace(15e6, 0.002)),
        ("120 mbit/s", "250 us", LinkPace(15e6, 0.00025)),
        (None, None, None),
    ],
)
def test_what_is_written_is_what_is_meant(rate: Any, latency: Any, expected: LinkPace | None) -> None:
    assert parse_pace(rate, latency) == expected


@pytest.mark.parametrize(
    ("rate", "latency", "said", "hint"),
    [
        ("120 MB/s", None, "unit 'MB/s'", "Mbit/s"),
        ("120", None, "no unit", "kbit/s"),
        ("fast", None, "not a number", "Gbit/s"),
        (0, None, "nothing would ever arrive", "Mbit/s"),
        ("-5 Mbit/s", None, "nothing would ever arrive", "more than 0"),
        (float("nan"), None, "finite", "bit/s"),
        ("1e999 bit/s", None, "finite", "bit/s"),
        (True, None, "bool", "bit/s"),
        ("1 Mbit/s", "2 m", "unit 'm'", "ms"),
        ("1 Mbit/s", "-2 ms", "before it is sent", "2 ms"),
        (None, "2 ms", "without a link_rate", "link_rate="),
    ],
)
def test_nonsense_is_refused_by_name(rate: Any, latency: Any, said: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        parse_pace(rate, latency)
    assert hint in caught.value.hint


def test_a_pace_says_itself_as_people_do() -> None:
    assert str(LinkPace(15e6, 0.002)) == "120 Mbit/s, 2 ms"
    assert str(LinkPace(125e6)) == "1 Gbit/s"
    assert str(LinkPace(1000.0, 1.5)) == "8 kbit/s, 1.5 s"
    assert str(LinkPace(0.05)) == "0.4 bit/s"


def test_chunks_are_short_in_time_and_never_less_than_a_packet() -> None:
    assert Pacer(LinkPace(15e6)).chunk_bytes == 150_000
    assert Pacer(LinkPace(1e9)).chunk_bytes == 256 << 10
    assert Pacer(LinkPace(100.0)).chunk_bytes == LEAST_CHUNK_BYTES


def test_a_late_sender_keeps_the_rate_and_an_idle_link_saves_nothing_up() -> None:
    pacer = Pacer(LinkPace(1000.0))
    assert pacer.departure(100, begun=5.0, now=5.0) == pytest.approx(5.1)
    # Woken 0.15 s late: the second chunk follows the first one, and may leave at once.
    assert pacer.departure(100, begun=5.0, now=5.25) == pytest.approx(5.2)
    # A message that begins later starts when it begins.
    assert pacer.departure(100, begun=7.0, now=7.0) == pytest.approx(7.1)
    # One that waited for its receiver for long does not send all of that at once.
    assert pacer.departure(100, begun=7.0, now=20.0) == pytest.approx(20.0 - CATCH_UP_SECONDS + 0.1)


def test_two_messages_take_turns_on_one_link() -> None:
    pacer = Pacer(LinkPace(1000.0))
    departures = [pacer.departure(100, begun=begun, now=1.0) for begun in (1.0, 1.0, 1.0, 1.0)]
    assert departures == pytest.approx([1.1, 1.2, 1.3, 1.4])


class Arrivals:
    """What came, in bytes, and when, as the receiver saw it."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []
        self.total = 0

    async def read(self, comm: Any, nbytes: int) -> None:
        """Take raw bytes off the stream of ``comm``, as they come, until ``nbytes`` are there."""
        seen = 0
        while seen < nbytes:
            piece = await comm.stream.read_bytes(1 << 20, partial=True)
            seen += len(piece)
            self.total += len(piece)
            self.samples.append((time.monotonic(), self.total))

    def never_ahead_of(self, rate: float, started: float) -> None:
        """A sample is taken after its bytes came, so a busy machine can only make them look later.

        Many samples: the bytes were spread out, not held back and sent at once (a read takes up to 64 KiB).
        """
        assert len(self.samples) > PAYLOAD >> 15
        for when, nbytes in self.samples:
            assert nbytes <= rate * (when - started) + CHUNK


Serve = Callable[[Any], Awaitable[None]]


def played(
    serve: Serve,
    receive: Callable[[Callable[..., Awaitable[Any]]], Awaitable[None]],
    pace: LinkPace = PACE,
    security: Any = None,
) -> Any:
    """Let a listener of a paced worker ``sender`` run ``serve`` on each connection that ``receive`` opens by its name."""
    heard = security.get_listen_args("worker") if security else {}
    shown = security.get_connection_args("worker") if security else {}

    async def play() -> PacedBackend:
        backend = PacedBackend(Links(pace), encrypted=security is not None)
        backend.links.own_name = "sender"
        async with backend.get_listener("127.0.0.1:0", serve, True, **heard) as listener:

            async def opened(name: str | None = None) -> Any:
                who = {HANDSHAKE_KEY: name} if name else {}
                return await connect(listener.contact_address, handshake_overrides=who, **shown)

            await asyncio.wait_for(receive(opened), 60)
        return backend

    return asyncio.run(play())


async def _send_payload(comm: Any) -> None:
    await comm.write({"data": b"x" * PAYLOAD})
    await comm.read()  # the receiver says when it has seen enough


@pytest.mark.parametrize("encrypted", [False, True])
def test_bytes_arrive_along_the_line_of_the_rate_and_all_of_them(tmp_path: Path, encrypted: bool) -> None:
    arrivals = Arrivals()
    security = temporary(tmp_path / "tls").security() if encrypted else None

    async def receive(opened: Any) -> None:
        started = time.monotonic()
        comm = await opened("b")
        await arrivals.read(comm, PAYLOAD)
        arrivals.never_ahead_of(RATE, started)
        assert comm.local_address.startswith("tls://" if encrypted else "tcp://")
        comm.abort()

    played(_until_closed(_send_payload), receive, security=security)
    assert arrivals.total >= PAYLOAD


def _until_closed(serve: Serve) -> Serve:
    async def run(comm: Any) -> None:
        try:
            await serve(comm)
        except CommClosedError:
            comm.abort()

    return run


def test_two_messages_to_one_peer_share_its_rate() -> None:
    arrivals = Arrivals()

    async def receive(opened: Any) -> None:
        started = time.monotonic()
        comms = [await opened("b"), await opened("b")]
        await asyncio.gather(*(arrivals.read(comm, PAYLOAD // 2) for comm in comms))
        arrivals.never_ahead_of(RATE, started)
        for comm in comms:
            comm.abort()

    async def serve(comm: Any) -> None:
        await comm.write({"data": b"x" * (PAYLOAD // 2)})
        await comm.read()

    played(_until_closed(serve), receive)
    assert arrivals.total >= PAYLOAD


def test_two_peers_have_a_link_each() -> None:
    """Together they get more than one link could have carried by then, each by itself never does."""
    names = ("b", "c")
    one_by_one = {name: Arrivals() for name in names}

    async def receive(opened: Any) -> None:
        started = time.monotonic()
        comms = {name: await opened(name) for name in names}
        await asyncio.gather(*(one_by_one[name].read(comms[name], PAYLOAD) for name in names))
        for name in names:
            one_by_one[name].never_ahead_of(RATE, started)
            comms[name].abort()
        b, c = (one_by_one[name].samples for name in names)
        together = [(when, n + max((m for then, m in c if then <= when), default=0)) for when, n in b]
        assert any(nbytes > RATE * (when - started) + 4 * CHUNK for when, nbytes in together)

    backend = played(_until_closed(_send_payload), receive)
    assert backend.links.to("b") is not backend.links.to("c")
    assert backend.links.to("b") is backend.links.to("b")


def test_nothing_is_paced_towards_a_client() -> None:
    """At this rate the payload would take an hour."""

    async def receive(opened: Any) -> None:
        comm = await opened()
        assert comm.remote_info[HANDSHAKE_KEY] == "sender"
        message = await comm.read()
        assert message["data"] == b"x" * PAYLOAD
        comm.abort()

    played(_until_closed(_send_payload), receive, LinkPace(100.0))


def test_latency_comes_once_a_message_and_before_its_first_byte() -> None:
    arrivals = Arrivals()

    async def receive(opened: Any) -> None:
        started = time.monotonic()
        comm = await opened("b")
        await arrivals.read(comm, PAYLOAD)
        comm.abort()
        assert arrivals.samples[0][0] - started >= 0.3
        # Four chunks, but one latency.
        assert arrivals.samples[-1][0] - arrivals.samples[0][0] < 3 * 0.3

    played(_until_closed(_send_payload), receive, LinkPace(5 * RATE, 0.3))


def test_messages_on_one_connection_stay_whole() -> None:
    """Written at the same time, read one after the other."""
    sizes = [200_000, 50, 100_000, 1]

    async def serve(comm: Any) -> None:
        await asyncio.gather(*(comm.write({"n": n, "data": bytes([n % 251]) * n}) for n in sizes))
        await comm.read()

    async def receive(opened: Any) -> None:
        comm = await opened("b")
        messages = [await comm.read() for _ in sizes]
        assert sorted(message["n"] for message in messages) == sorted(sizes)
        assert all(message["data"] == bytes([message["n"] % 251]) * message["n"] for message in messages)
        comm.abort()

    played(_until_closed(serve), receive)


def test_the_connecting_side_is_paced_too() -> None:
    """A paced connector towards a paced listener: the request is as slow as an answer."""
    arrivals = Arrivals()

    async def play() -> None:
        here, there = PacedBackend(Links(PACE)), PacedBackend(Links(PACE))
        here.links.own_name, there.links.own_name = "a", "b"
        accepted = asyncio.Event()

        async def serve(comm: Any) -> None:
            assert comm.remote_info[HANDSHAKE_KEY] == "a"
            await arrivals.read(comm, PAYLOAD)
            accepted.set()

        from distributed.comm import registry

        async with there.get_listener("127.0.0.1:0", serve, True) as listener:
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(registry.backends, "tcp", here)
                comm = await connect(listener.contact_address, handshake_overrides={HANDSHAKE_KEY: "a"})
            started = time.monotonic()
            await comm.write({"data": b"x" * PAYLOAD})
            await asyncio.wait_for(accepted.wait(), 60)
            arrivals.never_ahead_of(RATE, started)
            comm.abort()

    asyncio.run(play())


@pytest.mark.parametrize("how", ["cancelled", "receiver gone"])
def test_a_message_that_is_cut_off_takes_its_connection_with_it(how: str) -> None:
    found: dict[str, Any] = {}
    ended = asyncio.Event()

    async def serve(comm: Any) -> None:
        writing = asyncio.ensure_future(comm.write({"data": b"x" * PAYLOAD * 10}))
        if how == "cancelled":
            await asyncio.sleep(0.1)
            writing.cancel()
        found["error"] = (await asyncio.gather(writing, return_exceptions=True))[0]
        found["closed"] = comm.closed()
        found["again"] = (await asyncio.gather(comm.write("x"), return_exceptions=True))[0]
        ended.set()

    async def receive(opened: Any) -> None:
        comm = await opened("b")
        if how == "cancelled":
            with pytest.raises(CommClosedError):
                await comm.read()
        else:
            await comm.stream.read_bytes(1)
            comm.abort()
        await ended.wait()

    played(serve, receive)
    expected = asyncio.CancelledError if how == "cancelled" else CommClosedError
    assert isinstance(found["error"], expected)
    assert found["closed"]
    assert isinstance(found["again"], CommClosedError)
