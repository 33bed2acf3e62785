"""Where new events of a run come from: its log, which another process may be writing, or the run itself."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kvlab.store.events import Event
from kvlab.store.log import LogTail
from kvlab.store.rows import events_of
from kvlab.store.saved import COMPLETE, EVENTS, SavedRun
from kvlab_widgets.rows import RunRows


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
    """Follows the log on disk; reads only what was written since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = RunRows()
        self._tail = LogTail(path / EVENTS)

    def poll(self) -> bool:
        """See :class:`Feed`. A run is over when its folder says so."""
        over = (self.path / COMPLETE).exists()
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
        # The follower is there before the log is read; what it is given is not in the log yet.
        self._undo: Callable[[], None] = run.follow(self._new.put)
        self.rows.feed(event for _, event in events_of(SavedRun(run.path).events))

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
