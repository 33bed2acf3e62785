"""Memory on its way out: a copy that was let go counts until every worker that had it has said that it is gone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from kvlab.runtime.budget import Budget

logger = logging.getLogger(__name__)

LEAVING_SECONDS = 5.0
"""How long workers may take to let go of a copy: usually it is milliseconds."""


@dataclass(slots=True)
class _Copy:
    """A copy that leaves: its Dask key, the workers that have not answered, and since when."""

    key: str
    workers: set[str]
    since: float


class Leaving:
    """Reservations of a budget whose memory is being given back. Thread-safe."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._copies: dict[str, _Copy] = {}
        self._changed = threading.Condition()

    def add(self, name: str, key: str, workers: Iterable[str]) -> None:
        """The copy called ``key`` leaves ``workers``; ``name`` and what begins with it and ``@`` is reserved until then."""
        there = set(workers)
        with self._changed:
            if there:
                self._copies[name] = _Copy(key, there, time.monotonic())
            else:
                self._release(name)

    def left(self, key: str | None, worker: str) -> None:
        """A worker says that it let ``key`` go; None: the worker is gone, and everything with it."""
        with self._changed:
            for name, copy in list(self._copies.items()):
                if key in (None, copy.key):
                    copy.workers.discard(worker)
                    if not copy.workers:
                        del self._copies[name]
                        self._release(name)
            self._changed.notify_all()

    def nbytes(self, device: str | None = None) -> int:
        """What is still reserved for copies that leave, on ``device`` if that is named."""
        with self._changed:
            return sum(self._budget.held(name, device) for name in self._copies)

    def wait(self) -> None:
        """Return when everything that leaves now has left.

        What a worker has not confirmed within :data:`LEAVING_SECONDS` is taken for gone, and the log says so: an answer
        that was lost must not hold its room for ever.
        """
        with self._changed:
            names = set(self._copies)
            while waiting := [self._copies[name].since for name in names & self._copies.keys()]:
                left = min(waiting) + LEAVING_SECONDS - time.monotonic()
                if left <= 0:
                    self._give_up(names)
                else:
                    self._changed.wait(left)

    def _give_up(self, names: set[str]) -> None:
        late = [n for n in names & self._copies.keys() if time.monotonic() - self._copies[n].since >= LEAVING_SECONDS]
        logger.warning("workers did not say within %.0f s that they let %d copies go", LEAVING_SECONDS, len(late))
        for name in late:
            del self._copies[name]
            self._release(name)

    def _release(self, name: str) -> None:
        self._budget.release(name)
        self._budget.release_all(f"{name}@")
