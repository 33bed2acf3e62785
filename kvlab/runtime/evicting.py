"""Room where there is none: K/V that nobody uses at the moment goes, in the order of a policy.

Where a segment is read back from disk more quickly than it is computed again, it goes there, and the states that have it
are spilled. Else it goes with all that continues it, and they are evicted. Used again, they come back by whatever road is
cheapest. What an action claims, what is pinned or leased and what is in transit stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kvlab.cost.model import PrefillCurve
from kvlab.policy.eviction import NEVER, Candidate, EvictionPolicy
from kvlab.policy.shelves import in_order
from kvlab.runtime.spilling import HEADER_BYTES, Leaver

if TYPE_CHECKING:
    from kvlab.runtime.catalog import Catalog
    from kvlab.runtime.entries import SegmentEntry, StateEntry
    from kvlab.state.identity import ModelIdentity

AS_TOKENS = PrefillCurve(0.0, 1.0, 0.0, 1)

NextUse = Callable[[str], float | None]
"""State → actions until its next use: :data:`~kvlab.policy.eviction.NEVER`, or None where it is not one of whom is asked."""


class _Victim(NamedTuple):
    """A segment that has to leave memory, and whether it gets a file before that."""

    recipe: str
    to_disk: bool


class Evictor:
    """Frees room in a catalog. Thread-safe: what changes the catalog happens under its lock.

    Attributes
    ----------
    prices
        What computing a segment again takes, by the model that made it. As many seconds as tokens, where nobody has measured.
    """

    def __init__(self, catalog: Catalog, policy: EvictionPolicy) -> None:
        self._catalog, self.policy = catalog, policy
        self.prices: dict[ModelIdentity, PrefillCurve] = {}
        self._graphs: list[NextUse] = []
        # Two at a time would write a segment twice, and each count on what the other one frees.
        self._one_at_a_time = threading.Lock()

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

    def gone(self, recipe: str, *, evicted: bool) -> None:
        """A segment has left memory: it was ``evicted``, to disk or for good, or nobody wants it any more."""
        self.policy.gone(recipe, evicted=evicted)

    def free(self, nbytes: int, device: str | None = None, *, evict: bool = True) -> int:
        """Free ``nbytes``, on ``device`` if that is named. Returns the bytes that were freed.

        First what is on its way out already is waited for, however little it is; then, with ``evict``, segments leave
        memory in the policy's order, to disk where that pays, and none of them where all together are not enough. Returns
        when the workers have let them go.
        """
        catalog = self._catalog
        reaped = catalog.reap()
        going = catalog.leaving.nbytes(device)
        if reaped or going:
            catalog.leaving.wait()
            return reaped + going
        while evict:
            with self._one_at_a_time:
                with catalog.lock:
                    victims = self._victims(nbytes, device)
                if not victims:
                    return 0
                self._write([one for one in victims if one.to_disk])
                freed = self._let_go([one.recipe for one in victims])
                catalog.leaving.wait()
            if freed:  # else all of them were wanted again meanwhile
                return freed
        return 0

    def spill(self, recipes: Sequence[str]) -> int:
        """Write these to disk and let their memory go, whether it pays or not; those that somebody uses stay.

        Returns the bytes that were freed. What could not be written stays where it is.
        """
        catalog = self._catalog
        with self._one_at_a_time:
            with catalog.lock:
                idle = [
                    _Victim(recipe, to_disk=True)
                    for recipe in recipes
                    if catalog.idle(recipe) and catalog.copies(recipe)
                ]
            self._write(idle)
            freed = self._let_go([one.recipe for one in idle if catalog.file_of(one.recipe) is not None])
            catalog.leaving.wait()
        return freed

    def _victims(self, nbytes: int, device: str | None) -> list[_Victim]:
        """Who leaves so that ``nbytes`` are free; nobody where that cannot be.

        What does not go to disk takes along what continues it. Who was named before somebody larger had to go as well, and
        is not needed any more, stays.
        """
        catalog, found, named = self._catalog, dict[str, _Victim](), list[list[str]]()
        freed = 0
        for one in in_order(self.policy, self._candidates(device), catalog.moment):
            if freed >= nbytes:
                break
            to_disk = self._goes_to_disk(one)
            new = [recipe for recipe in ([one.key] if to_disk else self._continuing(one.key)) if recipe not in found]
            freed += sum(self._held(recipe, device) for recipe in new)
            found |= {recipe: _Victim(recipe, to_disk) for recipe in new}
            named.append(new)
        if freed < nbytes:
            return []
        for together in reversed(named):  # those that are worth most first
            spared = sum(self._held(recipe, device) for recipe in together)
            if spared <= freed - nbytes and not any(
                self._is_taken_along(recipe, found, together) for recipe in together
            ):
                freed -= spared
                for recipe in together:
                    del found[recipe]
        return list(found.values())

    def _is_taken_along(self, recipe: str, victims: Mapping[str, _Victim], but: Collection[str]) -> bool:
        """Whether a segment goes in any case, because something before it on a path goes for good."""
        for entry in self._catalog.sharing([recipe]):
            path = [segment.recipe for segment in entry.record.segments]
            before = path[: path.index(recipe)]
            if any(one in victims and not victims[one].to_disk and one not in but for one in before):
                return True
        return False

    def _goes_to_disk(self, one: Candidate) -> bool:
        disk = self._catalog.disk
        if disk is None:
            return False
        return disk.get(one.key) is not None or (
            one.next_use != NEVER and disk.pays(one.nbytes, one.seconds + one.fixed_seconds)
        )

    def _held(self, recipe: str, device: str | None) -> int:
        return sum(self._catalog.budget.held(copy.key, device) for copy in self._catalog.copies(recipe).values())

    def _write(self, victims: Sequence[_Victim]) -> None:
        """Give those a file that have none, with room on the disk made for it by the files that were used least lately."""
        catalog = self._catalog
        if catalog.disk is None or not victims:
            return
        with catalog.lock:
            leavers = [one for victim in victims if (one := self._leaver(victim.recipe)) is not None]
            missing = sum(one.nbytes + HEADER_BYTES for one in leavers) - catalog.disk.free_bytes()
            for recipe in self._files_by_use() if missing > 0 else ():
                if missing <= 0:
                    break
                file = catalog.disk.get(recipe)
                if file is not None and recipe not in {one.recipe for one in leavers}:
                    missing -= file.nbytes
                    catalog.lose_file(recipe)
        for recipe in catalog.disk.write(leavers):
            with catalog.lock:
                if catalog.segment(recipe) is None:  # nobody wants it any more
                    catalog.disk.forget(recipe)

    def _continuing(self, recipe: str) -> list[str]:
        """A segment in memory and those that continue it, the longest paths first."""
        found: dict[str, int] = {}
        for entry in self._catalog.sharing([recipe]):
            path = [segment.recipe for segment in entry.record.segments]
            found |= {path[depth]: depth for depth in range(path.index(recipe), len(path))}
        return sorted((one for one in found if self._catalog.copies(one)), key=lambda one: -found[one])

    def _leaver(self, recipe: str) -> Leaver | None:
        """What it takes to write a segment; None where it has a file already, or no copy that is known to lie somewhere."""
        there = next((copy for copy in self._catalog.copies(recipe).values() if copy.workers), None)
        if there is None or self._catalog.file_of(recipe) is not None:
            return None
        return Leaver(recipe, self._catalog.budget.held(there.key), there.future, frozenset(there.workers))

    def _files_by_use(self) -> list[str]:
        """Segments with a file that nobody needs at the moment: those in memory as well, then by their last use."""
        known = [self._catalog.segment(recipe) for recipe in self._catalog.on_disk()]
        idle = [held for held in known if held is not None and self._catalog.idle(held.recipe)]
        return [held.recipe for held in sorted(idle, key=lambda held: (not held.copies, held.last_use))]

    def _let_go(self, recipes: Sequence[str]) -> int:
        """Those that are still idle leave memory: to their file, or for good, with all that continues them."""
        catalog, freed = self._catalog, 0
        with catalog.lock:
            for recipe in recipes:
                if catalog.idle(recipe) and catalog.copies(recipe):  # else it went with what it continues
                    on_disk = catalog.file_of(recipe) is not None
                    freed += catalog.leave_memory(recipe) if on_disk else catalog.evict_segment(recipe)
        return freed

    def _candidates(self, device: str | None) -> Iterator[Candidate]:
        for held, states in self._catalog.idle_segments():
            nbytes = self._held(held.recipe, None)
            if nbytes and states and (device is None or self._held(held.recipe, device)):
                yield self._candidate(held, states, nbytes)

    def _candidate(self, held: SegmentEntry, states: list[StateEntry], nbytes: int) -> Candidate:
        record = states[0].record  # a segment's recipe has its model in it, so that all its states are of that one
        path, price = record.segments, self.prices.get(record.model, AS_TOKENS)
        depth, segment = next((i, one) for i, one in enumerate(path) if one.recipe == held.recipe)
        growing = price.seconds(segment.n_tokens, segment.start) - price.a
        # A machine on which prefills of any length take as long says nothing of tokens: then they count alike.
        seconds = growing if growing > 0 else float(segment.n_tokens)
        following = self._next_use([entry.record.id for entry in states])
        return Candidate(held.recipe, nbytes, seconds, held.last_use, following, segment.parent, depth, price.a)

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
