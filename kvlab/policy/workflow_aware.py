"""Workflow-aware: the graph knows who is used next, so what is worth least until then goes first.

The worth of a piece is the time that keeping it saves, for each byte and each moment that it must be kept:
seconds / (bytes × moments until its next use). What is known not to be used again is worth nothing. Where the next use is
unknown, as in a loop that may stop, it is expected as far ahead as the last use lies back, and to save what a piece saves
on average: whether it comes at all weighs more than what it costs. With nothing known that is LRU.

The seconds are those that grow with its tokens, attention to what lies before them included. The constant of a prefill is
not: whoever uses a state prefills something in any case, and with it, the worth of a path would depend on how it is cut,
ten short pieces being worth more than the one piece that they make up.

A piece is worth at least what continues it, since that cannot be used without it. So what continues it has always gone
before it, or goes with it, and was charged for itself: no piece has to answer for what it takes along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import fmean

from kvlab.policy.eviction import NEVER, Candidate


class WorkflowAware:
    """Orders by worth."""

    def used(self, key: str) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def gone(self, key: str, *, evicted: bool) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def order(self, candidates: Iterable[Candidate], now: int) -> Iterator[Candidate]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        listed = sorted(candidates, key=lambda one: -one.depth)
        usual = fmean(one.seconds / one.nbytes for one in listed) if listed else 0.0
        worths = {one.key: worth(one, now, usual) for one in listed}
        for one in listed:
            if one.parent in worths:
                worths[one.parent] = max(worths[one.parent], worths[one.key])
        return iter(sorted(listed, key=lambda one: (worths[one.key], one.last_use, -one.depth)))


def worth(candidate: Candidate, now: int, usual: float) -> float:
    """Seconds saved for each byte and moment that ``candidate`` is kept; ``usual`` is what a byte saves on average."""
    if candidate.next_use is None:
        return usual / max(1, now - candidate.last_use)
    if candidate.next_use == NEVER:
        return 0.0
    return candidate.seconds / (candidate.nbytes * max(1.0, candidate.next_use - now))
