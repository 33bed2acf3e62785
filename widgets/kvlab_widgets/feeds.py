"""Where new events of a run come from: its log, which another process may be writing, or the run itself."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any, Protocol

from kvlab.store.events import Event
from kvlab.store.log import LogTail
from kvlab.store.rows import events_of
from kvlab.store.saved import EVENTS, SavedRun
from kvlab_widgets.rows import RunRows

OVER_SECONDS = 0.5
"""Between two looks whether a log that does not grow is still being written."""


class Feed(Protocol):
    """A run's events, as they come."""

    rows: RunRows

    def poll(self) -> bool:
        """Fold in what is new. Returns whether there may be more."""
        ...

    def close(self) -> None:
        """Listen no longer."""
        ...


class LogFeed:
    """Follows the log on disk; reads only what was written since. Asking costs next to nothing while it does not grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = RunRows()
        self._saved, self._tail = SavedRun(path), LogTail(path / EVENTS)
        self._size, self._looked_at = -1, 0.0

    def poll(self) -> bool:
        """See :class:`Feed`. A run is over when its folder says so, or when nobody writes it any more."""
        size, now = (self.path / EVENTS).stat().st_size, time.monotonic()
        if size == self._size and now - self._looked_at < OVER_SECONDS:
            return True
        self._size, self._looked_at = size, now
        over = self._saved.complete or not self._saved.being_written
        self.rows.feed(event for _, event in events_of(self._tail.new()))
        return not over

    def close(self) -> None:
        """Nothing is held open."""


class RunFeed:
    """Follows a run of this process: its log until now, then every event as the hub delivers it."""

    def __init__(self, run: Any) -> None:
        self.rows = RunRows()
        self._new: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._run = run
        before, self._undo = run.follow(self._new.put)
        self.rows.feed(event for _, event in events_of(before))

    def poll(self) -> bool:
        """See :class:`Feed`. A run is over when its log is whole, so nothing comes after."""
        over = self._run.over
        while not self._new.empty():
            self.rows.feed(self._new.get())
        return not over

    def close(self) -> None:
        """Listen no longer."""
        self._undo()


def feed_of(run: Any) -> Feed:
    """The feed of a run: live runs of this process tell themselves, others through their log."""
    return RunFeed(run) if hasattr(run, "follow") else LogFeed(Path(run.path))
