"""Candidates kept in order while they come and go, so that who goes next is found without looking at all of them.

A policy divides candidates into shelves. On one shelf the order is the same at every moment, so a heap keeps it; which shelf
gives up its first is for the policy to say when it is asked. Where a policy compares only ends of paths, what is continued
is on no shelf until it is an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlab.policy.eviction import Candidate, EvictionPolicy

_Place = tuple[tuple[float, ...], str]


class Shelves:
    """All that may go. What is used meanwhile is taken, and put back as it is afterwards.

    A heap may still have places of what was taken or is continued since: they are passed over when they come up, so that
    putting and taking cost the logarithm of what is there.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._there: dict[str, Candidate] = {}
        self._n_continuing: Counter[str | None] = Counter()
        self._shelves: dict[Hashable, list[_Place]] = {}
        self._places: dict[str, tuple[Hashable, _Place]] = {}
        self._rates = 0.0

    @property
    def usual(self) -> float:
        """Seconds that a byte saves on average."""
        return self._rates / len(self._there) if self._there else 0.0

    def put(self, one: Candidate) -> None:
        """``one`` may go from now on; its key must not be there."""
        self._there[one.key] = one
        self._rates += one.rate
        self._n_continuing[self._before(one)] += 1
        if not self._n_continuing[one.key]:
            self._put_on_shelf(one)

    def take(self, key: str) -> Candidate | None:
        """``key`` is not there any more. Returns what it continues, where that was put on a shelf by it."""
        one = self._there.pop(key)
        self._rates -= one.rate
        self._places.pop(key, None)
        before = self._before(one)
        self._n_continuing[before] -= 1
        if before is None or self._n_continuing[before]:
            return None
        del self._n_continuing[before]
        parent = self._there.get(before)
        if parent is not None:
            self._put_on_shelf(parent)
        return parent

    def first(self, shelf: Hashable) -> Candidate | None:
        """Who goes first of one shelf; None where nobody is on it."""
        heap = self._shelves.get(shelf, [])
        while heap:
            place = heap[0]
            key = place[1]
            if self._places.get(key) == (shelf, place) and not self._n_continuing[key]:
                return self._there[key]
            heappop(heap)
        self._shelves.pop(shelf, None)
        return None

    def __iter__(self) -> Iterator[Hashable]:
        """The shelves, some of which may be empty."""
        return iter(list(self._shelves))

    def _before(self, one: Candidate) -> str | None:
        return one.parent if self._policy.ends_only else None

    def _put_on_shelf(self, one: Candidate) -> None:
        shelf, place = self._policy.shelf(one), (self._policy.place(one), one.key)
        self._places[one.key] = shelf, place
        heappush(self._shelves.setdefault(shelf, []), place)


def in_order(policy: EvictionPolicy, candidates: Iterable[Candidate], now: int) -> Iterator[Candidate]:
    """``candidates``, whoever should go first, first. Valid until one of them is used again."""
    shelves = Shelves(policy)
    for one in candidates:
        shelves.put(one)
    return policy.order(shelves, now)
