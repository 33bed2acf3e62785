"""What makes a Dask worker a kvlab worker: the model, the same-host probe, the event reporter, the memory gauge."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from typing import Any

import psutil
from distributed import WorkerPlugin

import kvlab.transport.serializers as wire
from kvlab.runtime.engines import MODEL_THREAD, ModelSpec, engine_for
from kvlab.runtime.keys import AUDIT, recipe_in
from kvlab.runtime.orders import Order
from kvlab.runtime.reporting import Reporter
from kvlab.store.events import Kind
from kvlab.transport import pacing, samehost
from kvlab.transport.memory import raise_descriptor_limit
from kvlab.transport.segment import Segment

logger = logging.getLogger(__name__)
PLUGIN_NAME = "kvlab"
PSS_SECONDS = 1.0
"""Reading PSS walks the page tables, which takes milliseconds in a process with large mappings."""


def plugin_of(worker: Any) -> KVWorker:
    """The kvlab plugin of a Dask worker."""
    plugin: KVWorker = worker.plugins[PLUGIN_NAME]
    return plugin


def pss_bytes() -> int:
    """Memory of this process, shared pages counted by share; where the system has no PSS, what is its own (USS)."""
    found = psutil.Process().memory_full_info()
    return int(getattr(found, "pss", 0) or found.uss)


class MemoryGauge:
    """K/V bytes in this worker: segments that lie here, and payloads of work in progress. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, bool]] = {}
        self._working: dict[str, int] = {}

    def place(self, key: str, nbytes: int, *, mapped: bool) -> None:
        """A segment came to lie here."""
        with self._lock:
            self._held[key] = (nbytes, mapped)

    def drop(self, key: str) -> int | None:
        """A segment left; its bytes, or None if it was not here."""
        with self._lock:
            held = self._held.pop(key, None)
        return held[0] if held else None

    def working(self, action: str, nbytes: int) -> None:
        """Work in progress took ``nbytes`` more."""
        with self._lock:
            self._working[action] = self._working.get(action, 0) + nbytes

    def done(self, action: str) -> None:
        """Work ended; what it made is counted by :meth:`place` from now on."""
        with self._lock:
            self._working.pop(action, None)

    def totals(self) -> tuple[int, int]:
        """(all K/V bytes here, those that no other worker of this host owns)."""
        with self._lock:
            working = sum(self._working.values())
            held = sum(nbytes for nbytes, _ in self._held.values())
            own = sum(nbytes for nbytes, mapped in self._held.values() if not mapped)
        return held + working, own + working


class KVWorker(WorkerPlugin):
    """Installed when the worker process starts, before it registers: a worker that is seen is ready to work."""

    name = PLUGIN_NAME

    def __init__(self, model: ModelSpec, *, same_host: str = "map") -> None:
        self.model = model
        self.same_host = same_host

    async def setup(self, worker: Any) -> None:
        """Load the model on its thread, so that the worker's event loop stays alive."""
        self.worker = worker
        self.worker_name = str(worker.name)
        self.memory = MemoryGauge()
        self._pss_at = 0.0
        self.reporter = Reporter(worker, f"{self.worker_name}/{os.getpid()}")
        raise_descriptor_limit()
        if self.same_host == "map":
            samehost.announce(worker)
        pacing.announce(worker)
        self._stop_observing = wire.observe(self._on_wire)
        try:
            self.engine = await asyncio.wrap_future(MODEL_THREAD.submit(engine_for, self.model))
        except BaseException:
            await self.teardown(worker)
            raise

    async def teardown(self, worker: Any) -> None:  # noqa: ARG002 - as Dask calls it
        """Send the last events."""
        self._stop_observing()
        self.reporter.close()

    def emit(self, kind: Kind, order: Order, **values: Any) -> None:
        """Report an event of an order's run."""
        self.reporter.emit(kind, order.run, action=order.action, worker=self.worker_name, **values)

    def describe(self) -> dict[str, Any]:
        """What the lab wants to know of this worker: plain values."""
        engine = self.engine
        return {
            "name": self.worker_name,
            "address": self.worker.address,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "device": str(engine.device),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1),
            "memory_bytes": psutil.virtual_memory().total,
            "same_host": self.same_host,
            "pace": pacing.installed_pace(),
            "identity": engine.identity,
            "config": engine.config,
        }

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Dask moved a task of this worker from one state to another: report segments that come and go."""
        recipe = recipe_in(key)
        if recipe is None:
            return
        if finish == "memory":
            segment = self.worker.data.get(key)
            if isinstance(segment, Segment) and not segment.failure:
                self.memory.place(key, segment.nbytes, mapped=segment.arrived == "map")
                detail = {"how": segment.arrived, "key": key, "made_ns": segment.made_ns}
                if segment.arrived == "hybrid":
                    detail["received_bytes"] = segment.header.timing["moved_nbytes"]
                self._placement(Kind.SEGMENT_PLACED, recipe, segment.nbytes, detail)
        elif start == "memory":
            nbytes = self.memory.drop(key)
            if nbytes is not None:
                self._placement(Kind.SEGMENT_DROPPED, recipe, nbytes, {"key": key})

    def _placement(self, kind: Kind, recipe: str, nbytes: int, detail: dict[str, Any]) -> None:
        self.reporter.emit(kind, segment=recipe, worker=self.worker_name, nbytes=nbytes, detail=detail)
        self.sample_memory()

    def sample_memory(self, run: str = "") -> None:
        """Report the K/V bytes this worker holds now, and at most once a second the memory of its process (PSS)."""
        held, own = self.memory.totals()
        detail: dict[str, int] = {"kv_unique_bytes": own}
        if time.monotonic() - self._pss_at > PSS_SECONDS:
            self._pss_at = time.monotonic()
            # Where no descriptor is left to read it with, the work that is measured has to end all the same.
            with contextlib.suppress(OSError, psutil.Error):
                detail["pss_bytes"] = pss_bytes()
        self.reporter.emit(Kind.MEMORY, run, worker=self.worker_name, nbytes=held, detail=detail)

    def _on_wire(
        self, event: str, *, recipe: str, peer: str, how: str, nbytes: int, seconds: float | None = None
    ) -> None:
        kind = Kind.SEGMENT_SENT if event == "sent" else Kind.SEGMENT_RECEIVED
        other = "to" if event == "sent" else "from"
        self.reporter.emit(
            kind,
            recipe if recipe.startswith(AUDIT) else "",
            segment=recipe,
            worker=self.worker_name,
            nbytes=nbytes,
            seconds=seconds,
            detail={other: peer, "how": how},
        )
