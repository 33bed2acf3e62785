"""Worker side of the event path: buffer a few milliseconds, then send through Dask's event topic.

Every process numbers its own events, so a gap in the numbers is a lost event.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import asdict
from typing import Any

from kvlab.store.events import Event, Kind

TOPIC = "kvlab"
FLUSH_SECONDS = 0.025


class Reporter:
    """Sends events of one worker. Thread-safe; :meth:`emit` never blocks on the network."""

    def __init__(self, worker: Any, source: str) -> None:
        self._worker = worker
        self.source = source
        self._numbers = itertools.count()
        self._buffer: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._flush_often, name=f"kvlab-events-{source}", daemon=True)
        self._thread.start()

    def emit(self, kind: Kind, run: str = "", **values: Any) -> None:
        """Record that ``kind`` happened now, in run ``run`` (or to the lab as a whole)."""
        with self._lock:
            event = asdict(Event(kind, time.time_ns(), self.source, next(self._numbers), **values))
            event["kind"] = str(kind)
            self._buffer.append({"run": run, "event": event})
        self._filled.set()

    def flush(self) -> None:
        """Send what is buffered now."""
        with self._lock:
            batch, self._buffer = self._buffer, []
            self._filled.clear()
        if batch:
            self._worker.log_event(TOPIC, batch)

    def close(self) -> None:
        """Send the rest and stop."""
        self._closed = True
        self.flush()
        self._filled.set()

    def _flush_often(self) -> None:
        while not self._closed:
            self._filled.wait()
            time.sleep(FLUSH_SECONDS)
            self.flush()
