"""Least recently used goes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvlab.policy.eviction import Candidate


class LRU:
    """The baseline: the past alone, and only how long ago."""

    def used(self, key: str) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. Candidates say their last use themselves."""

    def gone(self, key: str, *, evicted: bool) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def order(self, candidates: Iterable[Candidate], now: int) -> Iterator[Candidate]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        del now
        return iter(sorted(candidates, key=lambda one: (one.last_use, -one.depth)))
