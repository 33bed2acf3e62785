"""How events about segments, workers and memory change the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvlab.store.events import Event, Kind

if TYPE_CHECKING:
    from kvlab.store.fold import World


def worker_joined(world: World, seq: int, event: Event) -> None:
    """A worker is there; one that comes back is a new row."""
    told = {key: event.detail.get(key) for key in ("host", "pid", "device", "threads", "memory_bytes")}
    world.add_row("workers", event.worker, seq, event, worker=event.worker, status="running", kv_bytes=0, **told)


def worker_lost(world: World, seq: int, event: Event) -> None:
    """A worker is gone, and with it every segment placed on it."""
    row = world.find("workers", event.worker)
    if row is not None:
        row.update(status="lost", reason=event.detail.get("reason"), lost_ns=event.time_ns)
    for row in [row for copies in world.held.values() for row in copies.values() if row["worker"] == event.worker]:
        _end_stay(world, row, seq, event)


def segment_created(world: World, seq: int, event: Event) -> None:
    """A segment exists. A recompute creates it again: the row is the first one's, with the new checksum."""
    told = {key: event.detail.get(key) for key in ("parent", "start", "n_prompt", "checksum")}
    row = world.find("segments", event.segment)
    if row is None:
        row = world.add_row("segments", event.segment, seq, event, segment=event.segment, n_copies=0)
        row["n_copies"] = len(_copies(world, event.segment))
    row.update(worker=event.worker, n_tokens=event.n_tokens, nbytes=event.nbytes, **told)


def segment_placed(world: World, seq: int, event: Event) -> None:
    """A worker holds a segment. Hearing it twice is one stay."""
    copies = world.held.setdefault((_host(world, event.worker), str(event.segment)), {})
    if event.worker in copies:
        return
    before = _distinct(copies)
    copies[str(event.worker)] = world.add_row(
        "placements",
        (event.segment, event.worker),
        seq,
        event,
        segment=event.segment,
        worker=event.worker,
        nbytes=event.nbytes,
        how=event.detail.get("how"),
    )
    _account(world, event, _distinct(copies) - before, event.nbytes or 0, +1)


def segment_dropped(world: World, seq: int, event: Event) -> None:
    """A worker no longer holds a segment."""
    row = world.held.get((_host(world, event.worker), str(event.segment)), {}).get(str(event.worker))
    if row is not None:
        _end_stay(world, row, seq, event)


def segment_sent(world: World, seq: int, event: Event) -> None:
    """Bytes were put on a wire."""
    world.bytes_moved += event.nbytes or 0
    _crossed(world, seq, event, "sent", "to")


def segment_received(world: World, seq: int, event: Event) -> None:
    """Bytes arrived. They were counted when they were sent."""
    _crossed(world, seq, event, "received", "from")


def memory(world: World, seq: int, event: Event) -> None:
    """A worker's memory was sampled."""
    told = {key: event.detail.get(key) for key in ("pss_bytes", "kv_unique_bytes")}
    world.add_row("memory", seq, seq, event, worker=event.worker, nbytes=event.nbytes, **told)


def _crossed(world: World, seq: int, event: Event, direction: str, peer: str) -> None:
    world.add_row(
        "transfers",
        seq,
        seq,
        event,
        segment=event.segment,
        direction=direction,
        worker=event.worker,
        peer=event.detail.get(peer),
        nbytes=event.nbytes,
        how=event.detail.get("how"),
        seconds=event.seconds,
    )


def _end_stay(world: World, row: dict[str, Any], seq: int, event: Event) -> None:
    at = _host(world, row["worker"]), row["segment"]
    copies = world.held[at]
    before = _distinct(copies)
    del copies[row["worker"]]
    row.update(dropped_seq=seq, dropped_ns=event.time_ns)
    if not copies:
        del world.held[at]
    placed = Event(event.kind, event.time_ns, event.source, event.source_seq, segment=row["segment"], worker=row["worker"])
    _account(world, placed, _distinct(copies) - before, -(row["nbytes"] or 0), -1)


def _account(world: World, event: Event, distinct: int, on_worker: int, copies: int) -> None:
    world.kv_bytes += distinct
    world.peak_kv_bytes = max(world.peak_kv_bytes, world.kv_bytes)
    worker, segment = world.find("workers", event.worker), world.find("segments", event.segment)
    if worker is not None:
        worker["kv_bytes"] += on_worker
    if segment is not None:
        segment["n_copies"] += copies


def _distinct(copies: dict[str, dict[str, Any]]) -> int:
    """Bytes of memory behind the copies of one segment on one host; a map shares another copy's memory."""
    own = sum(row["nbytes"] or 0 for row in copies.values() if row["how"] != "map")
    return own or max((row["nbytes"] or 0 for row in copies.values()), default=0)


def _host(world: World, worker: str | None) -> str:
    row = world.find("workers", worker)
    return str((row or {}).get("host") or worker)


def _copies(world: World, segment: str | None) -> list[str]:
    return [worker for (_, name), copies in world.held.items() if name == segment for worker in copies]


MEMORY_HANDLERS = {
    Kind.WORKER_JOINED: worker_joined,
    Kind.WORKER_LOST: worker_lost,
    Kind.SEGMENT_CREATED: segment_created,
    Kind.SEGMENT_PLACED: segment_placed,
    Kind.SEGMENT_DROPPED: segment_dropped,
    Kind.SEGMENT_SENT: segment_sent,
    Kind.SEGMENT_RECEIVED: segment_received,
    Kind.MEMORY: memory,
}
