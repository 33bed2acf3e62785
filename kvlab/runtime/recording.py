"""Keeping a run's events: on disk as they come, and folded in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kvlab.errors import NoRoom
from kvlab.store.events import Event
from kvlab.store.fold import World
from kvlab.store.saved import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvlab.store.runs import RunFolder


class RunRecorder:
    """Keeps a run's events: on disk, and folded in memory. Called on the hub's thread alone."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.world = World.empty()
        self.no_room: NoRoom | None = None
        self.closed = False
        self._lock = threading.Lock()
        self._followers: list[Callable[[list[Event]], None]] = []

    def append(self, events: list[Event]) -> None:
        """Keep ``events``. A full disk is remembered; the events wait in memory and are tried again with the next."""
        with self._lock:
            for event in events:
                self.world.apply(event)
            try:
                self.folder.log.append(events)
                self.no_room = None
            except NoRoom as error:
                self.no_room = error
            for follower in self._followers:
                follower(events)

    def flush(self) -> None:
        """Write what waits, so that another process can read it. A full disk is remembered as by :meth:`append`."""
        with self._lock:
            if self.closed:
                return
            try:
                self.folder.log.flush()
                self.no_room = None
            except NoRoom as error:
                self.no_room = error

    def follow(self, follower: Callable[[list[Event]], None]) -> Callable[[], None]:
        """Write what waits, then give ``follower`` all later events, in the log's order. Returns the undo.

        What is in the log when this returns and what the follower is given are together every event, each once.
        ``follower`` is called on the hub's thread and must only take note.
        """
        with self._lock:
            if not self.closed:
                self.folder.log.flush()
            self._followers.append(follower)
        return lambda: self._followers.remove(follower) if follower in self._followers else None

    def all_actions_over(self) -> bool:
        """Whether every operator has said that it ended."""
        with self._lock:
            return all(row["status"] not in ("planned", "running") for row in self.world.rows["operators"])

    def tables(self) -> Tables:
        """The tables as they are now."""
        with self._lock:
            # Arrow tables are built while nobody folds; each is immutable once it is built.
            tables = Tables(self.world)
            for name in tables:
                tables[name]
            return tables

    def close(self) -> None:
        """Write the rest and mark the folder whole."""
        with self._lock:
            try:
                self.folder.complete()
                self.no_room, self.closed = None, True
            except NoRoom as error:
                self.no_room = error
