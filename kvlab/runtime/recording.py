"""Keeping a run's events: on disk as they come, and folded in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kvlab.errors import NoRoom
from kvlab.store.events import Event, Kind
from kvlab.store.fold import World
from kvlab.store.log import read_log
from kvlab.store.saved import EVENTS, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from kvlab.runtime.core import WorkerSeen
    from kvlab.runtime.hub import Hub
    from kvlab.store.runs import RunFolder


def announce_workers(hub: Hub, run: str, workers: Iterable[WorkerSeen]) -> None:
    """Tell the record of ``run`` which workers are there when it begins."""
    for worker in workers:
        hub.emit(
            Kind.WORKER_JOINED, run, worker=worker.name,
            detail={
                "host": worker.host, "pid": worker.pid, "device": worker.device, "threads": worker.cores,
                "memory_bytes": worker.memory_bytes,
            },
        )  # fmt: skip


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
            if self.closed:  # what all runs are told reaches one that has just ended
                return
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
            if not self.closed:
                self._flush()

    def follow(self, follower: Callable[[list[Event]], None]) -> tuple[pa.Table, Callable[[], None]]:
        """All events so far, and from now on every later one to ``follower``, in the log's order; and the undo.

        ``follower`` is called on the hub's thread and must only take note.
        """
        with self._lock:
            if not self.closed:
                self._flush()
            self._followers.append(follower)
            # Read under the lock: no event is in both, and none in neither.
            table = read_log(self.folder.path / EVENTS)
        return table, lambda: self._followers.remove(follower) if follower in self._followers else None

    def _flush(self) -> None:
        try:
            self.folder.log.flush()
            self.no_room = None
        except NoRoom as error:
            self.no_room = error

    def events(self) -> pa.Table:
        """All events so far, as they lie in the log."""
        with self._lock:
            if not self.closed:
                self._flush()
            return read_log(self.folder.path / EVENTS)

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
