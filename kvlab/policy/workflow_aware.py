"""Workflow-aware: the graph knows who is used next, so what is worth least until then goes first.

The worth of a piece is the time that keeping it saves, for each byte and each moment that it must be kept:
seconds / (bytes × moments until its next use). What is known not to be used again is worth nothing. Where the next use is
unknown, as in a loop that may stop, it is expected as far ahead as the last use lies back, and to save what a piece saves
on average: whether it comes at all weighs more than what it costs. With nothing known that is LRU.

The seconds are those that grow with its tokens, attention to what lies before them included. The constant of a prefill is
not: whoever uses a state prefills something in any case, and with it, the worth of a path would depend on how it is cut,
ten short pieces being worth more than the one piece that they make up.

What continues a piece cannot be used without it, so only ends of paths are compared. What continues a piece has then always
gone before it, and was charged for itself: no piece has to answer for what it takes along.

Worths change with the moment, and do not keep their order. But of pieces of which a byte saves as much, the one that is used
last is worth least at every moment, so they share a shelf, and only the first of each shelf is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar

from kvlab.policy.eviction import NEVER, Candidate
from kvlab.policy.shelves import Shelves

_Head = tuple[float, int, int, str, Candidate]


class WorkflowAware:
    """Orders by worth."""

    ends_only: ClassVar = True

    def used(self, key: str) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def gone(self, key: str, *, evicted: bool) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def shelf(self, one: Candidate) -> Hashable:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. Those that save as much for each byte share one."""
        return one.next_use if one.next_use in (None, NEVER) else ("known", one.rate)

    def place(self, one: Candidate) -> tuple[float, ...]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        return -(one.next_use or 0), one.last_use, -one.depth

    def order(self, shelves: Shelves, now: int) -> Iterator[Candidate]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        usual = shelves.usual

        def head(one: Candidate) -> _Head:
            return worth(one, now, usual), one.last_use, -one.depth, one.key, one

        heads = [head(one) for shelf in shelves if (one := shelves.first(shelf)) is not None]
        heapify(heads)
        while heads:
            one = heappop(heads)[-1]
            shelf = self.shelf(one)
            if one is not shelves.first(shelf):
                continue  # somebody was put before it
            parent = shelves.take(one.key)
            for changed in {shelf} if parent is None else {shelf, self.shelf(parent)}:
                if (following := shelves.first(changed)) is not None:
                    heappush(heads, head(following))
            yield one


def worth(candidate: Candidate, now: int, usual: float) -> float:
    """Seconds saved for each byte and moment that ``candidate`` is kept; ``usual`` is what a byte saves on average."""
    if candidate.next_use is None:
        return usual / max(1, now - candidate.last_use)
    if candidate.next_use == NEVER:
        return 0.0
    return candidate.rate / max(1.0, candidate.next_use - now)
