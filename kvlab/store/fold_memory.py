"""How events about segments, workers and memory change the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvlab.store.events import Event, Kind

if TYPE_CHECKING:
    from kvlab.store.fold import World

CAME_WHOLE = ("transfer", "restored")
"""How a segment came of which nothing was computed where it lies."""


def worker_joined(world: World, seq: int, event: Event) -> None:
    """A worker is there; one that comes back is a new row. What it holds already now counts for its host."""
    mine = [copies for copies in world.held.values() if event.worker in copies]
    before = sum(_distinct(world, copies) for copies in mine)
    told = {key: event.detail.get(key) for key in ("host", "pid", "device", "threads", "memory_bytes")}
    row = world.find("workers", event.worker)
    if row is None or row["status"] == "lost":
        row = world.add_row("workers", event.worker, seq, event, worker=event.worker, kv_bytes=0)
    row.update(status="running", **told)
    world.placed_bytes += sum(_distinct(world, copies) for copies in mine) - before


def worker_lost(world: World, seq: int, event: Event) -> None:
    """A worker is gone, and with it every segment placed on it."""
    row = world.find("workers", event.worker)
    if row is not None:
        row.update(status="lost", reason=event.detail.get("reason"), lost_ns=event.time_ns)
    world.sampled.pop(str(event.worker), None)
    for row in [row for copies in world.held.values() for row in copies.values() if row["worker"] == event.worker]:
        _end_stay(world, row, seq, event)


def segment_created(world: World, seq: int, event: Event) -> None:
    """A segment exists. A recompute creates it again: the row is the first one's, with the new checksum."""
    told = {key: event.detail.get(key) for key in ("parent", "start", "n_prompt", "checksum")}
    row = world.find("segments", event.segment)
    if row is None:
        row = world.add_row("segments", event.segment, seq, event, segment=event.segment, n_copies=0)
        row["n_copies"] = len(world.held.get(str(event.segment), ()))
    row.update(worker=event.worker, n_tokens=event.n_tokens, nbytes=event.nbytes, **told)


def segment_placed(world: World, seq: int, event: Event) -> None:
    """A worker holds a segment. Hearing it twice is one stay."""
    if world.find("workers", event.worker) is None:
        # The lab's workers may have joined before the run began.
        world.add_row("workers", event.worker, seq, event, worker=event.worker, status="running", kv_bytes=0)
    copies = world.held.setdefault(str(event.segment), {})
    if event.worker in copies:
        return
    before = _distinct(world, copies)
    how = event.detail.get("how")
    came = (event.nbytes if how in CAME_WHOLE else event.detail.get("received_bytes")) or 0
    copies[str(event.worker)] = world.add_row(
        "placements",
        (event.segment, event.worker),
        seq,
        event,
        segment=event.segment,
        worker=event.worker,
        nbytes=event.nbytes,
        received_bytes=came,
        how=how,
    )
    _account(world, event, _distinct(world, copies) - before, event.nbytes or 0, +1)


def segment_dropped(world: World, seq: int, event: Event) -> None:
    """A worker no longer holds a segment."""
    row = world.held.get(str(event.segment), {}).get(str(event.worker))
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
    """A worker's memory was sampled. What a worker maps is held by another one, so only its own bytes add up."""
    told = {key: event.detail.get(key) for key in ("pss_bytes", "kv_unique_bytes")}
    own = told["kv_unique_bytes"] if told["kv_unique_bytes"] is not None else event.nbytes
    world.sampled[str(event.worker)] = own or 0
    world.peak_sampled_bytes = max(world.peak_sampled_bytes or 0, sum(world.sampled.values()))
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
    copies = world.held[row["segment"]]
    before = _distinct(world, copies)
    del copies[row["worker"]]
    row.update(dropped_seq=seq, dropped_ns=event.time_ns)
    if not copies:
        del world.held[row["segment"]]
    placed = Event(
        event.kind, event.time_ns, event.source, event.source_seq, segment=row["segment"], worker=row["worker"]
    )
    _account(world, placed, _distinct(world, copies) - before, -(row["nbytes"] or 0), -1)


def _account(world: World, event: Event, distinct: int, on_worker: int, copies: int) -> None:
    world.placed_bytes += distinct
    world.peak_placed_bytes = max(world.peak_placed_bytes, world.placed_bytes)
    worker, segment = world.find("workers", event.worker), world.find("segments", event.segment)
    if worker is not None:
        worker["kv_bytes"] += on_worker
    if segment is not None:
        segment["n_copies"] += copies


def _distinct(world: World, copies: dict[str, dict[str, Any]]) -> int:
    """Bytes of memory behind the copies of one segment; a map shares the memory of another copy on its host."""
    own: dict[str, int] = {}
    mapped: dict[str, int] = {}
    for worker, row in copies.items():
        host, nbytes = _host(world, worker), row["nbytes"] or 0
        if row["how"] == "map":
            mapped[host] = max(mapped.get(host, 0), nbytes)
        else:
            own[host] = own.get(host, 0) + nbytes
    return sum(own.values()) + sum(nbytes for host, nbytes in mapped.items() if host not in own)


def _host(world: World, worker: str | None) -> str:
    row = world.find("workers", worker)
    return str((row or {}).get("host") or worker)


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
