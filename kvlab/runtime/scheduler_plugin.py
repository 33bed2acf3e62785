"""Workers that come and go, told by the scheduler: a worker that is killed can tell nothing itself.

It also frees tasks that the scheduler would forget: one with a loose restriction to a worker that died, made runnable
while no other worker was there, is not looked at again when a new one joins (it is in no task's set of valid workers).
"""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from typing import Any

from distributed import SchedulerPlugin

from kvlab.runtime.reporting import TOPIC
from kvlab.store.events import Event, Kind


class WorkersSeen(SchedulerPlugin):
    """Reports every worker that joins or leaves."""

    name = "kvlab-workers-seen"
    idempotent = True
    """On somebody's scheduler the one of an earlier lab stays, and tells a later lab as well."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._names: dict[str, str] = {}

    async def start(self, scheduler: Any) -> None:
        """Learn the names of the workers that are there already."""
        self._names.update({address: str(state.name) for address, state in scheduler.workers.items()})

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker has registered; kvlab's have their model loaded by then."""
        state = scheduler.workers[worker]
        self._names[worker] = str(state.name)
        detail = {"host": state.host, "address": worker, "threads": state.nthreads, "pid": state.pid}
        self._tell(scheduler, Kind.WORKER_JOINED, str(state.name), detail)
        stranded = [task for task in scheduler.unrunnable if task.loose_restrictions]
        for task in stranded:
            task.worker_restrictions = set()
        if stranded:
            scheduler.transitions({task.key: "waiting" for task in stranded}, stimulus_id="kvlab-worker-joined")

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """A worker is gone, however that came."""
        # By now the scheduler has forgotten the worker's name.
        name = self._names.pop(worker, worker)
        self._tell(scheduler, Kind.WORKER_LOST, name, {"address": worker, "reason": "left the scheduler"})

    def _tell(self, scheduler: Any, kind: Kind, name: str, detail: dict[str, Any]) -> None:
        event = asdict(Event(kind, time.time_ns(), "scheduler", next(self._numbers), worker=name, detail=detail))
        event["kind"] = str(kind)
        scheduler.log_event(TOPIC, [{"run": "", "event": event}])
