"""Room where there is none: K/V that nobody uses at the moment goes, in the order of a policy.

A segment goes with all that continues it, and the states that had it are evicted: used again, they come back by whatever
road is cheapest. What an action claims, what is pinned and what is in transit stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvlab.policy.eviction import NEVER, Candidate, EvictionPolicy

if TYPE_CHECKING:
    from kvlab.runtime.catalog import Catalog, SegmentEntry, StateEntry

NextUse = Callable[[str], float | None]
"""State → actions until its next use: :data:`~kvlab.policy.eviction.NEVER`, or None where it is not one of whom is asked."""


class Evictor:
    """Frees room in a catalog. Thread-safe: everything happens under the catalog's lock.

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
        self.policy.gone(recipe, evicted=getattr(self._evicting, "now", False))

    def free(self, nbytes: int) -> int:
        """Evict until ``nbytes`` are free, or nothing more may go. Returns the bytes freed."""
        with self._catalog.lock:
            self._catalog.reap()
            freed = 0
            self._evicting.now = True
            try:
                for candidate in self.policy.order(self._candidates(), self._catalog.moment):
                    if freed >= nbytes:
                        break
                    if self._catalog.copies(candidate.key):  # else it went with what it continues
                        freed += self._catalog.evict_segment(candidate.key)
            finally:
                self._evicting.now = False
            return freed

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
