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
FLUSH_EVENTS = 64


class Reporter:
    """Sends events of one worker. Thread-safe; :meth:`emit` never blocks on the network."""

    def __init__(self, worker: Any, source: str) -> None:
        self._worker = worker
        self.source = source
        self._numbers = itertools.count()
        self._buffer: list[dict[str, Any]] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._flush_often, name=f"kvlab-events-{source}", daemon=True)
        self._thread.start()

    def emit(self, kind: Kind, run: str = "", **values: Any) -> None:
        """Record that ``kind`` happened now, in run ``run`` (or to the lab as a whole)."""
        with self._wake:
            event = Event(kind, time.time_ns(), self.source, next(self._numbers), **values)
            self._buffer.append({"run": run, "event": asdict(event)})
            self._wake.notify()

    def flush(self) -> None:
        """Send what is buffered now."""
        with self._wake:
            batch, self._buffer = self._buffer, []
        if batch:
            self._worker.log_event(TOPIC, batch)

    def close(self) -> None:
        """Send the rest and stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self.flush()

    def _flush_often(self) -> None:
        while not self._closed:
            with self._wake:
                if not self._buffer:
                    self._wake.wait()
                if len(self._buffer) < FLUSH_EVENTS:
                    self._wake.wait(FLUSH_SECONDS)
            self.flush()
