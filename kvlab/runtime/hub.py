"""Client side of the event path: Dask's handler only enqueues; one thread puts events where they belong.

Events of a run go to its log on disk and its world in memory; events of the cluster (placements, workers) go to all
open runs. Listeners are called on the hub's thread, after the event is stored.
"""

from __future__ import annotations

import itertools
import logging
import operator
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from kvlab.store.events import Event, Kind

logger = logging.getLogger(__name__)

SOURCE = "lab"

IDLE_SECONDS = 0.5
"""After so long without an event, what sinks still hold back is written."""


class Sink(Protocol):
    """Where a run's events are kept."""

    def append(self, events: list[Event]) -> None:
        """Keep them, in order."""

    def idle(self) -> None:
        """Nothing has come for a while: hold nothing back."""


class Hub:
    """One a lab. :meth:`emit` and :meth:`on_dask_event` only enqueue; everything else happens on the hub's thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[str, Event] | threading.Event | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._sinks: dict[str, Sink] = {}
        self._listeners: list[Callable[[str, Event], None]] = []
        self._next_number: dict[str, int] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="kvlab-hub", daemon=True)
        self._thread.start()

    def emit(self, kind: Kind, run: str = "", *, at_ns: int | None = None, **values: Any) -> None:
        """Something happened on the lab's side, now or at ``at_ns``."""
        with self._lock:
            event = Event(kind, at_ns or time.time_ns(), SOURCE, next(self._numbers), **values)
            self._queue.put((run, event))

    def on_dask_event(self, event: Any) -> None:
        """Handler for Dask's event topic; ``event`` is (timestamp, batch of plain dicts)."""
        _, batch = event
        for item in batch:
            values = dict(item["event"])
            values["kind"] = Kind(values["kind"])
            self._queue.put((item["run"], Event(**values)))

    def add_sink(self, run: str, sink: Sink) -> None:
        """Send the events of ``run``, and the cluster's while it is open, to ``sink``."""
        with self._lock:
            self._sinks[run] = sink

    def remove_sink(self, run: str) -> None:
        """Stop sending events to ``run``'s sink, after everything enqueued before."""
        self.settle()
        with self._lock:
            self._sinks.pop(run, None)

    def listen(self, listener: Callable[[str, Event], None]) -> Callable[[], None]:
        """Call ``listener(run, event)`` for every event, on the hub's thread. Returns the undo."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def settle(self, timeout: float = 5.0) -> None:
        """Return when everything enqueued so far has been delivered; at once when the hub is closed or asks itself.

        After ``timeout`` seconds it returns and logs that events are still on their way.
        """
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            return
        done = threading.Event()
        self._queue.put(done)
        if not done.wait(timeout) and self._thread.is_alive():
            logger.warning("events were not delivered within %.0f s", timeout)

    def close(self) -> None:
        """Deliver the rest and stop."""
        self._queue.put(None)
        self._thread.join(timeout=5)

    def _drain(self) -> None:
        while True:
            item = self._next()
            events: list[tuple[str, Event]] = []
            waiting: list[threading.Event] = []
            while True:
                if isinstance(item, tuple):
                    events.append(item)
                elif item is not None:
                    waiting.append(item)
                if item is None or self._queue.empty():
                    break
                item = self._queue.get()
            for run, group in itertools.groupby(events, key=operator.itemgetter(0)):
                self._deliver(run, [event for _, event in group])
            for done in waiting:
                done.set()
            if item is None:
                return

    def _next(self) -> tuple[str, Event] | threading.Event | None:
        """What comes next. Sinks are told once when nothing does."""
        try:
            return self._queue.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                sinks = list(self._sinks.values())
            for sink in sinks:
                try:
                    sink.idle()
                except Exception:
                    logger.exception("the record of a run could not be written")
        return self._queue.get()

    def _deliver(self, run: str, events: list[Event]) -> None:
        for event in events:
            self._watch_for_gaps(event)
        with self._lock:
            sinks = list(self._sinks.values()) if not run else [s for name, s in self._sinks.items() if name == run]
            listeners = list(self._listeners)
        for sink in sinks:
            try:
                sink.append(events)
            except Exception:  # one run's trouble must not stop the others
                logger.exception("events of run %s could not be stored", run or "(all)")
        for event in events:
            for listener in listeners:
                try:
                    listener(run, event)
                except Exception:
                    logger.exception("a listener failed on %s", event.kind)

    def _watch_for_gaps(self, event: Event) -> None:
        """Every source numbers its events: a jump is a loss, and every open run is told."""
        expected = self._next_number.get(event.source, event.source_seq)
        if event.source_seq > expected:
            text = f"{event.source_seq - expected} events of {event.source} were lost"
            self.emit(Kind.NOTE, detail={"text": text, "level": "warning"})
        self._next_number[event.source] = event.source_seq + 1
