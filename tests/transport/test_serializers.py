"""How a segment crosses: mapped where the peer is proven near, as bytes anywhere else, marked when it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed.protocol import deserialize, serialize
from distributed.protocol.utils import pack_frames, unpack_frames

import kvlab.transport.serializers as wire
from kvlab.errors import TransferFailed
from kvlab.transport.memory import map_offer
from kvlab.transport.samehost import HANDSHAKE_KEY, own_probe
from kvlab.transport.segment import Bundle, Segment

DTYPES = ("float32", "float16", "bfloat16")
NEAR = {"recipient": {HANDSHAKE_KEY: own_probe(), "address": "tcp://near:1"}}
FAR = {
    "none": None,
    "empty": {},
    "no recipient": {"recipient": None},
    "no probe": {"recipient": {"address": "tcp://far:1"}},
    "wrong nonce": {"recipient": {HANDSHAKE_KEY: {**(own_probe() or {}), "nonce": "ab" * 16}}},
}


def send(segment: Segment, context: dict[str, Any] | None) -> tuple[dict[str, Any], list[Any]]:
    header, frames = serialize(segment, serializers=["dask", "error"], on_error="raise", context=context)
    return header, frames


def receive(header: dict[str, Any], frames: list[Any]) -> Any:
    return deserialize(header, frames, deserializers=["dask", "error"])


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    heard: list[dict[str, Any]] = []
    stop = wire.observe(lambda event, **values: heard.append({"event": event, **values}))
    yield heard
    stop()
    stop()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_near_peer_maps_and_no_byte_moves(make_segment: Any, dtype: str, told: list[dict[str, Any]]) -> None:
    sent = make_segment(dtype=dtype)
    header, frames = send(sent, NEAR)
    assert frames == []
    arrived = receive(header, frames)
    assert arrived.arrived == "map"
    assert arrived.block.inode == sent.block.inode
    assert arrived.block.fd != sent.block.fd
    assert arrived.header == sent.header
    assert torch.equal(arrived.tensor(), sent.tensor())
    assert [(t["event"], t["how"], t["nbytes"]) for t in told] == [("sent", "map", 0), ("received", "map", 0)]
    assert told[0]["peer"] == "tcp://near:1"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("context", FAR.values(), ids=FAR.keys())
def test_any_doubt_sends_the_bytes(make_segment: Any, dtype: str, context: Any, told: list[dict[str, Any]]) -> None:
    sent = make_segment(dtype=dtype)
    header, frames = send(sent, context)
    assert sum(memoryview(frame).nbytes for frame in frames) == sent.nbytes + 8
    arrived = receive(header, frames)
    assert arrived.arrived == "transfer"
    assert arrived.block is None
    assert arrived.header == sent.header
    assert torch.equal(arrived.tensor(), sent.tensor())
    assert [(t["event"], t["how"], t["nbytes"]) for t in told] == [
        ("sent", "transfer", sent.nbytes),
        ("received", "transfer", sent.nbytes),
    ]
    assert told[1]["seconds"] == arrived.seconds >= 0


def test_memory_that_cannot_be_mapped_goes_as_bytes_to_a_near_peer_too(make_segment: Any) -> None:
    header, frames = send(make_segment(mapped=False), NEAR)
    assert len(frames) == 2
    assert receive(header, frames).arrived == "transfer"


def test_sending_copies_nothing(make_segment: Any) -> None:
    sent = make_segment()
    _, frames = send(sent, None)
    assert torch.frombuffer(frames[1], dtype=torch.uint8).data_ptr() == sent.tensor().data_ptr()


@pytest.mark.parametrize("n_tokens", [1, 5, 8])
def test_the_payload_lies_on_sixteen_bytes_in_a_receive_buffer(make_segment: Any, n_tokens: int) -> None:
    """Dask's TCP reads all frames of a message into one buffer, behind a table of their lengths."""
    sent = make_segment(n_tokens=n_tokens, dtype="bfloat16")
    header, frames = send(sent, None)
    for n_before in range(3):
        envelope = [b"m" * 16] * n_before
        buffer = bytearray(pack_frames([*envelope, *frames]))
        base = torch.frombuffer(buffer, dtype=torch.uint8)
        assert base.data_ptr() % 16 == 0
        payload = unpack_frames(buffer)[-1]
        there = torch.frombuffer(payload, dtype=torch.uint8)
        table = 8 * (1 + n_before + len(frames)) + sum(len(e) for e in envelope)
        assert there.data_ptr() - base.data_ptr() == table + 8
        arrived = receive(header, [unpack_frames(buffer)[-2], payload])
        assert torch.equal(arrived.tensor(), sent.tensor())


def test_read_only_frames_are_received(make_segment: Any) -> None:
    sent = make_segment()
    header, frames = send(sent, None)
    arrived = receive(header, [bytes(frame) for frame in frames])
    assert torch.equal(arrived.tensor(), sent.tensor())


def test_a_flipped_byte_on_the_way_is_noticed_by_its_user(make_segment: Any) -> None:
    from kvlab.errors import ChecksumMismatch

    header, frames = send(make_segment(), None)
    received = bytearray(frames[1])
    received[100] ^= 4
    arrived = receive(header, [frames[0], received])
    with pytest.raises(ChecksumMismatch):
        arrived.tensor()
    # A damaged copy is not handed on as if it were good: whoever asks for it is told.
    onward = receive(*send(arrived, None))
    with pytest.raises(TransferFailed, match="checksum"):
        onward.tensor()


def test_a_receiver_that_fails_is_retried_and_then_marks_the_segment(make_segment: Any) -> None:
    """Dask retries OSError; anything else, or no end, would leave the dependents waiting for ever."""
    sent = make_segment("gone" * 4)
    header, frames = send(sent, NEAR)
    stale = map_offer(sent.block)
    del sent
    assert not Path(f"/proc/self/fd/{stale['fd']}").exists()
    for _ in range(2):
        for _ in range(wire.TRIES - 1):
            with pytest.raises(OSError, match="gonegonegone"):
                receive(header, frames)
        marked = receive(header, frames)
        assert "FileNotFoundError" in marked.failure
        with pytest.raises(TransferFailed, match="FileNotFoundError"):
            marked.tensor()


@pytest.mark.parametrize(
    "damage",
    [
        lambda header, frames: (header, frames[:1]),
        lambda header, frames: (header, [frames[0], frames[1][:-4]]),
        lambda header, frames: (
            {**header, "device": "cpu", "segment": {**header["segment"], "dtype": "float99"}},
            frames,
        ),
    ],
    ids=["frame missing", "cut off", "unknown dtype"],
)
def test_damaged_messages_raise_only_oserror(make_segment: Any, damage: Any) -> None:
    header, frames = wire._serialize(make_segment("damaged!" * 2), None)
    header, frames = damage(header, frames)
    for _ in range(wire.TRIES - 1):
        with pytest.raises(OSError, match="could not be received"):
            wire._deserialize(header, frames)
    assert wire._deserialize(header, frames).failure


def test_success_starts_the_count_of_tries_again(make_segment: Any) -> None:
    sent = make_segment("flaky" * 4)
    header, frames = send(sent, None)
    for _ in range(2):
        with pytest.raises(OSError, match="flaky"):
            receive(header, frames[:1])
        assert receive(header, frames).arrived == "transfer"


def test_another_layout_is_refused_by_name(make_segment: Any) -> None:
    header, frames = wire._serialize(make_segment(), None)
    header["segment"]["layout"] = "kvlab.layers-kv-heads-tokens-dim.v9"
    with pytest.raises(TransferFailed, match=r"v9 is not kvlab.*v1"):
        wire._deserialize(header, frames).tensor()


def test_a_marked_segment_travels_as_marked(make_segment: Any, told: list[dict[str, Any]]) -> None:
    lost = Segment(make_segment().header, None, failure="the cable was cut")
    header, frames = send(lost, NEAR)
    assert frames == []
    assert receive(header, frames).failure == "the cable was cut"
    assert told == []


def test_bundles_do_not_travel(make_segment: Any) -> None:
    with pytest.raises(TypeError):
        serialize(Bundle([make_segment()]), on_error="raise")
