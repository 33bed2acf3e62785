"""What the cluster tells of itself, kept where decisions look: which workers are up, and what lies where."""

from __future__ import annotations

from kvlab.runtime.core import Core, WorkerSeen
from kvlab.store.events import Event, Kind


def watch(core: Core, event: Event) -> None:
    """Take one event of the cluster in. Runs on the hub's thread; also where dropped handles are acted on."""
    worker = event.worker or ""
    if event.kind is Kind.WORKER_JOINED and event.source == "scheduler":
        core.workers[worker] = _seen(worker, event, core.workers.get(worker))
    elif event.kind is Kind.WORKER_LOST and event.source == "scheduler":
        known = core.workers.get(worker)
        if known is not None and known.address == event.detail["address"]:
            known.address = None
        core.catalog.worker_lost(worker)
    elif event.kind in (Kind.SEGMENT_PLACED, Kind.SEGMENT_DROPPED) and event.segment:
        present = event.kind is Kind.SEGMENT_PLACED
        core.catalog.located(event.segment, event.detail["key"], worker, present=present)
    core.catalog.reap()


def _seen(worker: str, event: Event, known: WorkerSeen | None) -> WorkerSeen:
    """A worker that is started again is on the host it was on; a new one is known by what the scheduler says."""
    detail = event.detail
    if known is not None:
        return WorkerSeen(
            worker, detail["address"], known.host, detail["pid"] or 0, known.cores, known.device, known.memory_bytes
        )
    return WorkerSeen(worker, detail["address"], detail["host"], detail["pid"] or 0, detail["threads"], "cpu")
