"""Dask's view of segments: their true size, and how they cross to another process.

To a process on the same host goes a descriptor (*map*, no bytes move); to any other, the bytes (*transfer*).
A deserializer runs on the event loop: it never digests and never blocks. On trouble it raises OSError, which Dask
retries (any other error would leave dependents waiting for ever); after ``TRIES`` it returns a segment marked as failed,
whose user raises :class:`kvlab.errors.TransferFailed`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from kvlab.state.identity import LAYOUT
from kvlab.transport.memory import Block, map_offer
from kvlab.transport.samehost import HANDSHAKE_KEY, reachable
from kvlab.transport.segment import Bundle, Header, Segment, as_bytes

_OBJECT_BYTES = 500
# Dask reads a message and its first buffer into one piece of memory, behind headers of any length, and every further
# buffer into memory of its own. This one goes first, so that a payload's numbers lie on the boundary below. It must not
# be bytes, which Dask takes for a part of the message.
_FIRST_BUFFER = bytearray(8)
ALIGNMENT = 16
"""Of a payload's address, in bytes, however it came."""

TRIES = 3
_failed_tries: Counter[str] = Counter()

Observer = Callable[..., None]
_observers: list[Observer] = []


def observe(observer: Observer) -> Callable[[], None]:
    """Call ``observer(event, recipe=, peer=, how=, nbytes=)`` when a segment leaves or arrives here. Returns the undo."""
    _observers.append(observer)
    return lambda: _observers.remove(observer) if observer in _observers else None


def _tell(event: str, **values: Any) -> None:
    for observer in tuple(_observers):
        observer(event, **values)


@sizeof.register(Segment)
def _segment_size(segment: Segment) -> int:
    return segment.nbytes + _OBJECT_BYTES


@sizeof.register(Bundle)
def _bundle_size(bundle: Bundle) -> int:
    return bundle.nbytes + _OBJECT_BYTES


@dask_serialize.register(Segment)
def _serialize(segment: Segment, context: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    recipient = (context or {}).get("recipient") or {}
    header: dict[str, Any] = {"segment": asdict(segment.header), "sent_ns": time.time_ns()}
    peer = recipient.get("address") or ""
    if segment.failure:
        header["failure"] = segment.failure
        return header, []
    if segment.block is not None and reachable(recipient.get(HANDSHAKE_KEY)):
        header["map"] = map_offer(segment.block)
        _tell("sent", recipe=segment.header.recipe, peer=peer, how="map", nbytes=0)
        return header, []
    try:
        payload = segment.tensor()
    except Exception as error:  # noqa: BLE001 - see the module docstring: nothing but a marked segment may leave here
        header["failure"] = str(error)
        return header, []
    header["device"] = payload.device.type
    host = payload.cpu() if payload.device.type != "cpu" else payload
    _tell("sent", recipe=segment.header.recipe, peer=peer, how="transfer", nbytes=host.nbytes)
    return header, [_FIRST_BUFFER, as_bytes(host)]


@dask_deserialize.register(Segment)
def _deserialize(header: dict[str, Any], frames: list[Any]) -> Segment:
    fields = dict(header["segment"])
    fields["shape"] = tuple(fields["shape"])
    described = Header(**fields)
    if "failure" in header:
        return Segment(described, None, failure=header["failure"])
    try:
        segment = _receive(described, header, frames)
    except Exception as error:
        _failed_tries[described.recipe] += 1
        if _failed_tries[described.recipe] < TRIES:
            raise OSError(f"segment {described.recipe[:12]} could not be received: {error}") from error
        del _failed_tries[described.recipe]
        return Segment(described, None, failure=f"{type(error).__name__}: {error}, {TRIES} times")
    _failed_tries.pop(described.recipe, None)
    wire = 0 if segment.arrived == "map" else segment.nbytes
    segment.seconds = (time.time_ns() - header["sent_ns"]) / 1e9
    _tell("received", recipe=described.recipe, peer="", how=segment.arrived, nbytes=wire, seconds=segment.seconds)
    return segment


def _receive(described: Header, header: dict[str, Any], frames: list[Any]) -> Segment:
    import torch

    if described.layout != LAYOUT:
        return Segment(
            described, None, failure=f"layout {described.layout} is not {LAYOUT}: update kvlab on both sides"
        )
    dtype = getattr(torch, described.dtype)
    if "map" in header:
        block = Block.open(**header["map"])
        return Segment(described, block.tensor(described.shape, dtype), block=block, arrived="map")
    raw = torch.frombuffer(frames[1], dtype=torch.uint8)
    if raw.data_ptr() % ALIGNMENT:
        # A message of less than 128 kB, which Dask sends in one piece.
        raw = raw.clone()
    payload = raw.view(dtype).view(described.shape)
    if header["device"] == "cuda" and torch.cuda.is_available():
        payload = payload.cuda()
    return Segment(described, payload, arrived="transfer")
