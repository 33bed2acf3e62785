"""Room where there is none: K/V that nobody uses at the moment goes, in the order of a policy.

A segment goes with all that continues it, and the states that had it are evicted: used again, they come back by whatever
road is cheapest. What an action claims, what is pinned and what is in transit stays.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvlab.policy.eviction import NEVER, Candidate, EvictionPolicy

if TYPE_CHECKING:
    from kvlab.runtime.catalog import Catalog, SegmentEntry, StateEntry

logger = logging.getLogger(__name__)

LEAVING_SECONDS = 5.0
"""How long workers may take to let go of what was evicted: usually it is milliseconds."""

NextUse = Callable[[str], float | None]
"""State → actions until its next use: :data:`~kvlab.policy.eviction.NEVER`, or None where it is not one of whom is asked."""


class Evictor:
    """Frees room in a catalog. Thread-safe: what changes the catalog happens under its lock.

    Attributes
    ----------
    seconds
        What computing a segment again takes, by its tokens and those before it. As many as tokens, until the lab has
        measured better.
    """

    def __init__(self, catalog: Catalog, policy: EvictionPolicy) -> None:
        self._catalog, self.policy = catalog, policy
        self.seconds: Callable[[int, int], float] = lambda n_tokens, past: float(n_tokens)  # noqa: ARG005 - as it is called
        self._graphs: list[NextUse] = []
        self._evicting = threading.local()
        self._leaving: set[tuple[str, str]] = set()  # (key, worker)
        self._left = threading.Condition()
        self._rounds = itertools.count()

    @contextmanager
    def knowing(self, next_use: NextUse) -> Iterator[None]:
        """Inside the block, a run's graph says when its states are used next."""
        self._graphs.append(next_use)
        try:
            yield
        finally:
            self._graphs.remove(next_use)

    def used(self, recipe: str) -> None:
        """A segment is being used or made."""
        self.policy.used(recipe)

    def gone(self, recipe: str) -> None:
        """Nobody has a segment any more."""
        self.policy.gone(recipe, evicted=self._now_leaving is not None)

    def dropping(self, key: str, workers: Iterable[str]) -> None:
        """A copy is being let go: where that is an eviction, it is waited for."""
        leaving = self._now_leaving
        if leaving is not None:
            there = {(key, worker) for worker in workers}
            leaving |= there
            with self._left:
                self._leaving |= there

    @property
    def _now_leaving(self) -> set[tuple[str, str]] | None:
        """Copies that this thread is evicting; None outside of an eviction."""
        found: set[tuple[str, str]] | None = getattr(self._evicting, "copies", None)
        return found

    def free(self, nbytes: int) -> int:
        """Evict until ``nbytes`` are free, or nothing more may go, and wait until workers have let it go. Returns the bytes.

        Until then its room stays reserved: what is evicted lies in memory for a moment more.
        """
        catalog, name = self._catalog, f"leaving-{next(self._rounds)}"
        leaving: set[tuple[str, str]] = set()
        freed = 0
        with catalog.lock:
            catalog.reap()
            self._evicting.copies = leaving
            try:
                for candidate in self.policy.order(self._candidates(), catalog.moment):
                    if freed >= nbytes:
                        break
                    if catalog.copies(candidate.key):  # else it went with what it continues
                        catalog.budget.hold(name, freed + candidate.nbytes)
                        freed += catalog.evict_segment(candidate.key)
                        catalog.budget.hold(name, freed)
            finally:
                self._evicting.copies = None
        self._wait_for(leaving)
        catalog.budget.release(name)
        return freed

    def left(self, key: str | None, worker: str) -> None:
        """A worker says that it let ``key`` go; None: the worker is gone, and everything with it."""
        with self._left:
            if key is not None:
                self._leaving.discard((key, worker))
            else:
                self._leaving = {one for one in self._leaving if one[1] != worker}
            self._left.notify_all()

    def _wait_for(self, leaving: set[tuple[str, str]]) -> None:
        with self._left:
            if not self._left.wait_for(lambda: not leaving & self._leaving, LEAVING_SECONDS):
                logger.warning(
                    "workers did not say within %.0f s that they let %d copies go", LEAVING_SECONDS, len(leaving)
                )
                self._leaving -= leaving

    def _candidates(self) -> Iterator[Candidate]:
        for held, states in self._catalog.idle_segments():
            nbytes = sum(self._catalog.budget.held(copy.key) for copy in held.copies.values())
            if nbytes and states:
                yield self._candidate(held, states, nbytes)

    def _candidate(self, held: SegmentEntry, states: list[StateEntry], nbytes: int) -> Candidate:
        path = states[0].record.segments
        depth, segment = next((i, one) for i, one in enumerate(path) if one.recipe == held.recipe)
        seconds = self.seconds(segment.n_tokens, segment.start)
        following = self._next_use([entry.record.id for entry in states])
        return Candidate(held.recipe, nbytes, seconds, held.last_use, following, segment.parent, depth)

    def _next_use(self, states: list[str]) -> float | None:
        """The soonest that is known of; unknown if one of the states may be used by somebody who has not said so."""
        told = [self._told(state) for state in states]
        known = [steps for steps in told if steps is not None]
        soonest = min(known, default=NEVER)
        if soonest == NEVER and len(known) < len(told):
            return None
        return self._catalog.moment + soonest

    def _told(self, state: str) -> float | None:
        answers = [steps for graph in self._graphs if (steps := graph(state)) is not None]
        return min(answers, default=None)
