"""Bélády's rule: what is used again farthest in the future goes first. A reference: it needs the whole future.

L. A. Bélády, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
Optimal for pieces of one size and cost; pieces of K/V have both different, so it is a reference and no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvlab.errors import InvalidInput
from kvlab.policy.eviction import Candidate
from kvlab.policy.shelves import Shelves


class Belady:
    """Orders by the next use, which every candidate must know."""

    ends_only: ClassVar = False

    def used(self, key: str) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def gone(self, key: str, *, evicted: bool) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""

    def shelf(self, one: Candidate) -> str:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. There is one."""
        del one
        return ""

    def place(self, one: Candidate) -> tuple[float, ...]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`.

        Raises
        ------
        InvalidInput
            If the next use of a candidate is unknown.
        """
        return -_known(one), -one.depth, one.last_use

    def order(self, shelves: Shelves, now: int) -> Iterator[Candidate]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        del now
        while (one := shelves.first("")) is not None:
            shelves.take(one.key)
            yield one


def _known(candidate: Candidate) -> float:
    if candidate.next_use is None:
        raise InvalidInput(
            f"Bélády's rule wants the next use of {candidate.key}, and nobody knows it",
            hint='eviction="workflow" does with what is known',
        )
    return candidate.next_use
