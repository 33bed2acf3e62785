"""ARC: a balance between what was used once lately and what was used again, shifted by what it misses.

N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST '03. Changed: it counts pieces of
different sizes as one each, its capacity is what has been resident at most, and a piece may be named while others of its
list are in use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar, Literal

from kvlab.policy.eviction import Candidate
from kvlab.policy.shelves import Shelves


class ARC:
    """Four lists of keys, least recent first.

    ``once`` and ``again`` are resident (T1 and T2 of the paper); ``was_once`` and ``was_again`` are remembered (B1, B2).
    ``target`` is how many of the residents should be in ``once`` (p).
    """

    ends_only: ClassVar = False

    def __init__(self) -> None:
        self.once: OrderedDict[str, None] = OrderedDict()
        self.again: OrderedDict[str, None] = OrderedDict()
        self.was_once: OrderedDict[str, None] = OrderedDict()
        self.was_again: OrderedDict[str, None] = OrderedDict()
        self.target = 0.0
        self._capacity = 1

    def used(self, key: str) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. A key that is remembered shifts the balance."""
        if key in self.once or key in self.again:
            self.once.pop(key, None)
            self.again[key] = None
            self.again.move_to_end(key)
        elif key in self.was_once:
            self.target = min(self._capacity, self.target + max(1.0, len(self.was_again) / len(self.was_once)))
            del self.was_once[key]
            self.again[key] = None
        elif key in self.was_again:
            self.target = max(0.0, self.target - max(1.0, len(self.was_once) / len(self.was_again)))
            del self.was_again[key]
            self.again[key] = None
        else:
            self.once[key] = None
        self._capacity = max(self._capacity, len(self.once) + len(self.again))

    def gone(self, key: str, *, evicted: bool) -> None:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. Only what was evicted is remembered."""
        for resident, remembered in ((self.once, self.was_once), (self.again, self.was_again)):
            if key in resident:
                del resident[key]
                if evicted:
                    remembered[key] = None
        while len(self.once) + len(self.was_once) > self._capacity and self.was_once:
            self.was_once.popitem(last=False)
        while len(self.was_once) + len(self.was_again) > self._capacity and self.was_again:
            self.was_again.popitem(last=False)

    def shelf(self, one: Candidate) -> Literal["once", "again"]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`. One for each list of residents."""
        return "again" if one.key in self.again else "once"

    def place(self, one: Candidate) -> tuple[float, ...]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        return one.last_use, -one.depth

    def order(self, shelves: Shelves, now: int) -> Iterator[Candidate]:
        """See :class:`~kvlab.policy.eviction.EvictionPolicy`."""
        del now
        n_once = len(self.once)
        while True:
            once, again = shelves.first("once"), shelves.first("again")
            one = once if once is not None and (n_once > self.target or again is None) else again
            if one is None:
                return
            n_once -= one is once
            shelves.take(one.key)
            yield one
