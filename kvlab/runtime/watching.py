"""What the cluster tells of itself, kept where decisions look: which workers are up, and what lies where."""

from __future__ import annotations

from collections.abc import Callable

from kvlab.runtime.core import Core
from kvlab.store.events import Event, Kind


def watch(core: Core, event: Event, admit: Callable[[str], None], *, own: bool) -> None:
    """Take one event of the cluster in; ``admit(address)`` is called for a worker that was never seen.

    Where workers are not the lab's ``own``, also for one that comes again under its name: who started it is not known.

    Runs on the hub's thread; also where dropped handles are acted on.
    """
    worker = event.worker or ""
    if event.kind is Kind.WORKER_JOINED and event.source == "scheduler":
        known = core.workers.get(worker)
        if known is None or not own:
            admit(event.detail["address"])
        else:
            # Started again under its name: on the host it was on.
            known.address, known.pid = event.detail["address"], event.detail["pid"] or 0
    elif event.kind is Kind.WORKER_LOST and event.source == "scheduler":
        known = core.workers.get(worker)
        if known is not None and known.address == event.detail["address"]:
            known.address = None
        core.catalog.worker_lost(worker)
        core.catalog.leaving.left(None, worker)
    elif event.kind in (Kind.SEGMENT_PLACED, Kind.SEGMENT_DROPPED) and event.segment:
        present = event.kind is Kind.SEGMENT_PLACED
        detail = event.detail
        core.catalog.located(
            event.segment,
            detail["key"],
            worker,
            present=present,
            made_ns=detail.get("made_ns", 0),
            replica_bytes=(event.nbytes or 0) if detail.get("how") == "transfer" else 0,
        )
        if not present:
            core.catalog.leaving.left(event.detail["key"], worker)
    core.catalog.reap()
