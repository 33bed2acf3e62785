"""Least recently used goes first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvlab.policy.eviction import Candidate
from kvlab.policy.shelves import Shelves


class LRU:
    """The baseline: the past alone, and only how long ago."""

    ends_only: ClassVar = False

    def used(self, key: str) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. Candidates say their last use themselves."""

    def gone(self, key: str, *, evicted: bool) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def shelf(self, one: Candidate) -> str:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. There is one."""
        del one
        return ""

    def place(self, one: Candidate) -> tuple[float, ...]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        return one.last_use, -one.depth

    def order(self, shelves: Shelves, now: int) -> Iterator[Candidate]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        del now
        while (one := shelves.first("")) is not None:
            shelves.take(one.key)
            yield one
