"""Γ: who holds what. States and segments by name, their copies on workers, their phases, pins and handles.

The catalog is the client-side truth about ownership. It decides nothing and moves nothing; it counts references and lets
a segment go when no living state has it in its path. Thread-safe; every method is short, and all I/O is releasing Dask
futures, which only enqueues, and removing a file that was spilled.

One file a little over the usual length, because all of it changes the same counts under the same lock.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kvlab.errors import InvalidInput, StateGone
from kvlab.policy.eviction import EvictionPolicy
from kvlab.policy.workflow_aware import WorkflowAware
from kvlab.runtime.accounts import holders, number, own_bytes
from kvlab.runtime.budget import Budget, Holder
from kvlab.runtime.entries import Copy, SegmentEntry, StateEntry
from kvlab.runtime.evicting import Evictor
from kvlab.runtime.keeping import Keeping
from kvlab.runtime.keys import segment_key
from kvlab.runtime.leaving import Leaving
from kvlab.runtime.spilling import DiskTier
from kvlab.state.lifecycle import Phase, advance
from kvlab.state.prefixes import PrefixTree
from kvlab.state.records import StateRecord
from kvlab.store.spill import Spilled

PhaseChanged = Callable[[StateEntry, Phase, Phase], None]


class Catalog:
    """States and segments of one lab.

    Parameters
    ----------
    budget_bytes, device_budget_bytes
        What K/V may take on the host, and on each device.
    phase_changed
        Told of every step in a state's life.
    policy
        Who is evicted first.
    disk
        Where what has to leave memory may go; None: nowhere.
    clock
        Seconds, for the deadlines of leases.
    """

    def __init__(
        self,
        budget_bytes: int,
        phase_changed: PhaseChanged,
        policy: EvictionPolicy | None = None,
        *,
        device_budget_bytes: int | None = None,
        disk: DiskTier | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.RLock()
        self.disk = disk
        self.evictor = Evictor(self, policy or WorkflowAware())
        self.budget = Budget(budget_bytes, self.holders, self.evictor.free, device_budget_bytes)
        self.leaving = Leaving(self.budget)
        self.moment = 0
        self.n_ended = 0
        """Actions that began and ended."""
        self._at_work: set[str] = set()
        self.preparing = threading.Lock()
        """Held by whoever sets room aside for an action, until it begins or fails. Never asked for with :attr:`lock` held."""
        self._clock = clock
        # Without handles, in the order in which they lost the last one.
        self._lingering: dict[str, None] = {}
        self.keeping = Keeping(self)
        self._phase_changed = phase_changed
        self._states: dict[str, StateEntry] = {}
        self._segments: dict[str, SegmentEntry] = {}
        self._generations: dict[str, int] = {}
        self._prefixes: dict[str, PrefixTree] = {}
        self._numbers = itertools.count(1)
        self.mark = secrets.token_hex(4)
        # Handles die on any thread, also inside a lock: finalizers only append here.
        self._dropped_handles: deque[str] = deque()

    # -- states

    @property
    def now(self) -> float:
        """Seconds by the clock of leases."""
        return self._clock()

    def new_state_id(self) -> str:
        """A name no other state of this lab has."""
        return f"s{next(self._numbers)}"

    def add(self, record: StateRecord, run: str = "") -> None:
        """Take a state whose segments have just been made or are shared with living states."""
        with self.lock:
            self._states[record.id] = StateEntry(record, run)
            self._tree(record.namespace).add(record.path_ids, record.id)
            for segment in record.segments:
                self._segments.setdefault(segment.recipe, SegmentEntry(segment.recipe)).owners.add(record.id)

    def entry(self, state: str) -> StateEntry:
        """The entry of a state.

        Raises
        ------
        StateGone
            If the lab does not know it (any more).
        """
        with self.lock:
            if state not in self._states:
                raise StateGone(
                    f"state {state} is not known to this lab any more",
                    hint="make it again from its text, or load it if it was saved",
                    state=state,
                )
            return self._states[state]

    def states(self) -> list[StateEntry]:
        """All states, oldest first."""
        self.reap()
        with self.lock:
            return list(self._states.values())

    def move_to(self, state: str, *phases: Phase) -> None:
        """Lead a state through ``phases``; each must be allowed from the one before."""
        with self.lock:
            entry = self.entry(state)
            for then in phases:
                now = entry.phase
                entry.phase = advance(state, now, then)
                self._phase_changed(entry, now, then)

    def require_living(self, state: str) -> StateEntry:
        """The entry of a state that can still be used, resident or not.

        Raises
        ------
        StateGone
            If it was evicted together with its lineage.
        """
        entry = self.entry(state)
        if entry.forgotten:
            raise StateGone(
                f"state {state} was evicted and its lineage forgotten: there is nothing to make it from",
                hint="make it again from its text, or load it if it was saved",
                state=state,
            )
        return entry

    def revive(self, record: StateRecord) -> None:
        """An evicted state is wanted again: its segments are, too (they are made when used)."""
        with self.lock:
            entry = self.require_living(record.id)
            if entry.phase is Phase.EVICTED:
                self.move_to(record.id, Phase.PLANNED)
                for segment in record.segments:
                    self._segments.setdefault(segment.recipe, SegmentEntry(segment.recipe)).owners.add(record.id)
                self._tree(record.namespace).add(record.path_ids, record.id)

    def settle(self, state: str) -> None:
        """A revived or spilled state has its segments again, and so may others that share them."""
        with self.lock:
            entry = self._states.get(state)
            if entry is None:
                return
            if entry.phase is Phase.PLANNED:
                self.move_to(state, Phase.MATERIALIZED, Phase.RESIDENT)
            for other in self.sharing(segment.recipe for segment in entry.record.segments):
                if other.phase is Phase.SPILLED and all(self.copies(s.recipe) for s in other.record.segments):
                    self.move_to(other.record.id, Phase.RESIDENT)

    def give_up(self, state: str) -> None:
        """Nobody makes a planned state any more, unless another action does: it is what has become of its segments.

        Where one of them is nowhere the state is evicted, and keeps those before it.
        """
        with self.lock:
            entry = self._states.get(state)
            if entry is None or entry.phase is not Phase.PLANNED or not entry.record.segments:
                return
            path = [segment.recipe for segment in entry.record.segments]
            held = self._segments.get(path[-1])
            if held is not None and held.owners & self._at_work:
                return
            missing = next(
                (n for n, one in enumerate(path) if not self.copies(one) and self.file_of(one) is None), None
            )
            if missing is None:
                self.move_to(state, Phase.MATERIALIZED, Phase.RESIDENT)
                if not all(self.copies(recipe) for recipe in path):
                    self.move_to(state, Phase.SPILLED)
                return
            self.move_to(state, Phase.EVICTED)
            self._tree(entry.record.namespace).remove(entry.record.path_ids, state)
            self._disown(state, reversed(path[missing:]))

    def give_up_all(self, run: str) -> None:
        """:meth:`give_up` for every state of ``run``, which is over."""
        with self.lock:
            for state in [name for name, entry in self._states.items() if entry.run == run]:
                self.give_up(state)

    def note_spilled(self, state: str) -> None:
        """A state that was just made of others' segments is spilled if some of them lie on disk alone."""
        with self.lock:
            path = [segment.recipe for segment in self.entry(state).record.segments]
            gone = [recipe for recipe in path if not self.copies(recipe)]
            if gone and all(self.file_of(recipe) for recipe in gone):
                self.move_to(state, Phase.SPILLED)

    def sharing(self, recipes: Iterable[str]) -> list[StateEntry]:
        """States that have one of these segments in their path."""
        owners = {owner for recipe in recipes if recipe in self._segments for owner in self._segments[recipe].owners}
        return [self._states[owner] for owner in sorted(owners & self._states.keys(), key=number)]

    def evict(self, state: str, *, forget: bool = False) -> int:
        """Let a state's own segments go; those that other living states share stay. Returns the bytes that are let go.

        Their room is free when the workers say so: :attr:`leaving` knows.

        Raises
        ------
        InvalidInput
            If the state is pinned or leased.
        IllegalTransition
            If it is in transit.
        """
        with self.lock:
            entry = self.entry(state)
            kept = entry.kept(self.now)
            if kept:
                hint = "state.unpin() first" if entry.pinned else "release the lease, or wait for its deadline"
                raise InvalidInput(f"state {state} is {kept}", hint=hint, state=state)
            if entry.phase is not Phase.EVICTED:
                self.move_to(state, *_EVICTING.get(entry.phase, (Phase.EVICTABLE, Phase.EVICTED)))
            entry.forgotten = entry.forgotten or forget
            return self._let_go(entry.record)

    def evict_segment(self, recipe: str) -> int:
        """Let a segment go that nobody uses, and all that continues it: the states that have it become evicted.

        They keep what comes before it on their path. Returns the bytes that are let go.
        """
        with self.lock:
            freed = 0
            for entry in self.sharing([recipe]):
                if entry.phase is not Phase.EVICTED:  # one that lost what continues this segment is
                    self.move_to(entry.record.id, *_EVICTING.get(entry.phase, (Phase.EVICTABLE, Phase.EVICTED)))
                self._tree(entry.record.namespace).remove(entry.record.path_ids, entry.record.id)
                path = [segment.recipe for segment in entry.record.segments]
                freed += self._disown(entry.record.id, reversed(path[path.index(recipe) :]), evicted=True)
            return freed

    def leave_memory(self, recipe: str) -> int:
        """Let the copies of a segment go that lies on disk, too: the states that have it become spilled.

        Returns the bytes that are let go.
        """
        with self.lock:
            held = self._segments[recipe]
            for entry in self.sharing([recipe]):
                if entry.phase is Phase.RESIDENT:
                    self.move_to(entry.record.id, Phase.EVICTABLE, Phase.SPILLED)
            self.evictor.gone(recipe, evicted=True)
            return sum(self._drop_copy(held, generation) for generation in list(held.copies))

    def idle_segments(self) -> list[tuple[SegmentEntry, list[StateEntry]]]:
        """Segments in memory that may leave it, and the states that have each: nobody keeps, uses or moves them."""
        with self.lock:
            idle = [(held, self._idle_states(held)) for held in self._segments.values() if held.copies]
            return [(held, states) for held, states in idle if states is not None]

    def idle(self, recipe: str) -> bool:
        """Whether a segment is known, in memory or on disk, and nobody keeps, uses or moves it."""
        with self.lock:
            held = self._segments.get(recipe)
            return held is not None and self._idle_states(held) is not None

    def _idle_states(self, held: SegmentEntry) -> list[StateEntry] | None:
        """The states of a segment that may go; None where somebody keeps, uses or moves it."""
        states = self.sharing([held.recipe])
        idle = len(states) == len(held.owners) and not any(entry.staying(self.now) for entry in states)
        return states if idle else None

    def _let_go(self, record: StateRecord) -> int:
        self._tree(record.namespace).remove(record.path_ids, record.id)
        return self._disown(record.id, [segment.recipe for segment in reversed(record.segments)])

    def _disown(self, owner: str, recipes: Iterable[str], *, evicted: bool = False) -> int:
        """``owner`` wants these no more; what nobody wants goes. Returns the bytes of memory that are let go."""
        freed = 0
        for recipe in recipes:
            held = self._segments.get(recipe)
            if held is None:
                continue
            held.owners.discard(owner)
            if not held.owners:
                freed += sum(self._drop_copy(held, generation) for generation in list(held.copies))
                del self._segments[recipe]
                self.evictor.gone(recipe, evicted=evicted)
                if self.disk is not None:
                    self.disk.forget(recipe)
        return freed

    def own_segments(self, state: str) -> list[str]:
        """Segments in memory that no other living state or action wants, the deepest first."""
        with self.lock:
            path = [self._segments[segment.recipe] for segment in self.entry(state).record.segments]
            return [held.recipe for held in reversed(path) if held.copies and held.owners == {state}]

    # -- handles

    def hold(self, state: str) -> None:
        """One more handle refers to a state."""
        with self.lock:
            self.entry(state).handles += 1

    def handle_died(self, state: str) -> None:
        """A handle was garbage-collected. Only notes it: :meth:`reap` acts."""
        self._dropped_handles.append(state)

    def reap(self) -> int:
        """Forget states that no handle refers to any more, and let their memory go; a lease keeps them until it ends.

        Returns the bytes that are let go.
        """
        freed = 0
        with self.lock:
            while self._dropped_handles:
                state = self._dropped_handles.popleft()
                if state in self._states:
                    self._states[state].handles -= 1
                    self._lingering[state] = None
            for state in list(self._lingering):
                entry = self._states.get(state)
                if entry is None or entry.handles > 0:
                    self._lingering.pop(state, None)
                elif not entry.kept(self.now):
                    self._lingering.pop(state, None)
                    freed += self._let_go(entry.record)
                    for then in _TO_EVICTED[entry.phase]:
                        self.move_to(state, then)
                    del self._states[state]
        return freed

    # -- segments

    def claim(self, action: str, recipes: Iterable[str]) -> None:
        """``action`` needs these segments: they stay until :meth:`unclaim`, whatever becomes of their states."""
        with self.lock:
            for recipe in recipes:
                self._segments.setdefault(recipe, SegmentEntry(recipe)).owners.add(action)

    def begin(self, action: str, recipes: Iterable[str]) -> None:
        """``action`` has all that it needs and uses these segments, or makes them: a moment passes. It claims them, too."""
        with self.lock:
            self.claim(action, recipes := list(recipes))
            self._at_work.add(action)
            self.moment += 1
            for recipe in recipes:
                self._segments[recipe].last_use = self.moment
                self.evictor.used(recipe)

    def unclaim(self, action: str, recipes: Iterable[str]) -> None:
        """``action`` is done with these segments, or needs them no more; those that no state has go."""
        with self.lock:
            self._disown(action, recipes)
            if action in self._at_work:
                self._at_work.discard(action)
                self.n_ended += 1

    def end_all(self, prefix: str) -> None:
        """Actions whose names begin with ``prefix`` are over, however they ended: nobody waits for them any more."""
        with self.lock:
            for action in [name for name in self._at_work if name.startswith(prefix)]:
                self.unclaim(action, [recipe for recipe, held in self._segments.items() if action in held.owners])

    @property
    def at_work(self) -> bool:
        """Whether any action has begun and not ended: it will give room back."""
        with self.lock:
            return bool(self._at_work)

    def next_key(self, recipe: str) -> tuple[int, str]:
        """Generation and key for a new attempt to make ``recipe``."""
        with self.lock:
            generation = self._generations.get(recipe, -1) + 1
            self._generations[recipe] = generation
            return generation, segment_key(recipe, generation, self.mark)

    def on_disk(self) -> frozenset[str]:
        """Segments that can be read back from disk."""
        return self.disk.recipes() if self.disk is not None else frozenset()

    def file_of(self, recipe: str) -> Spilled | None:
        """The file of a segment on disk, if it has one."""
        return self.disk.get(recipe) if self.disk is not None else None

    def lose_file(self, recipe: str) -> None:
        """A segment's file is given up: what had it there alone is evicted."""
        with self.lock:
            had_one = self.disk is not None and self.disk.forget(recipe)
            if had_one and recipe in self._segments and not self._segments[recipe].copies:
                self.evict_segment(recipe)

    def add_copy(self, recipe: str, generation: int, future: Any) -> Copy:
        """Take a copy that was just submitted; its room is already reserved under its key."""
        with self.lock:
            entry = self._segments.setdefault(recipe, SegmentEntry(recipe))
            copy = entry.copies[generation] = Copy(segment_key(recipe, generation, self.mark), future)
            return copy

    def discard_copy(self, recipe: str, generation: int) -> None:
        """A copy could not be made, or is damaged."""
        with self.lock:
            entry = self._segments.get(recipe)
            if entry is not None and generation in entry.copies:
                self._drop_copy(entry, generation)

    def _drop_copy(self, entry: SegmentEntry, generation: int) -> int:
        """Let one copy go. Its bytes count until the workers that have it say that it is gone; returns them."""
        copy = entry.copies.pop(generation)
        nbytes = self.budget.held(copy.key)
        self.leaving.add(copy.key, copy.key, copy.workers)
        copy.future.release()
        return nbytes

    def copies(self, recipe: str) -> dict[int, Copy]:
        """Live copies of a segment by generation: a snapshot."""
        with self.lock:
            entry = self._segments.get(recipe)
            return dict(entry.copies) if entry is not None else {}

    def located(
        self, recipe: str, key: str, worker: str, *, present: bool, made_ns: int = 0, replica_bytes: int = 0
    ) -> None:
        """A worker has, or no longer has, the copy of ``recipe`` that is called ``key``. Unknown copies are ignored.

        ``replica_bytes`` is what it takes there beside what others of the copy take. Dask brings replicas on its own
        accord where it makes again what a worker took along: they are counted, whether there is room or not.
        """
        with self.lock:
            for copy in self.copies(recipe).values():
                if copy.key != key:
                    continue
                if not present:
                    self._left(copy, worker)
                    continue
                if replica_bytes and copy.workers and worker not in copy.workers:
                    self.budget.hold(f"{key}@{worker}", replica_bytes, worker)
                self._came(copy, worker)
                copy.made_ns = made_ns or copy.made_ns

    def _came(self, copy: Copy, worker: str) -> None:
        """A copy is on ``worker``. Where whoever had it was lost meanwhile, what was reserved first stands for this one."""
        if not copy.workers:
            self.budget.release(f"{copy.key}@{worker}")
            self.budget.inherited(copy.key, None, worker)
        copy.workers.add(worker)

    def _left(self, copy: Copy, worker: str) -> None:
        """A copy is not on ``worker`` any more. What was reserved first stands for one of those that are left."""
        if worker not in copy.workers:
            return
        copy.workers.discard(worker)
        own = f"{copy.key}@{worker}"
        if copy.workers and not self.budget.has(own):
            heir = min(copy.workers)
            self.budget.release(f"{copy.key}@{heir}")
            self.budget.inherited(copy.key, worker, heir)
        self.budget.release(own)

    def placed(self, recipe: str, generation: int, worker: str, nbytes: int | None = None, *, made_ns: int = 0) -> None:
        """A copy lies on ``worker``, and takes ``nbytes`` if that is known by now. Unknown copies are ignored."""
        with self.lock:
            entry = self._segments.get(recipe)
            copy = entry.copies.get(generation) if entry is not None else None
            if copy is not None:
                self._came(copy, worker)
                copy.made_ns = made_ns or copy.made_ns
                if nbytes is not None:
                    self.budget.hold(copy.key, nbytes, worker)

    def replaced(self, recipe: str, generation: int, worker: str) -> None:
        """``generation`` was made anew on ``worker``: earlier copies that lie there alone serve nobody any more."""
        with self.lock:
            entry = self._segments.get(recipe)
            if entry is None or generation not in entry.copies:
                return
            self.budget.release(f"{entry.copies[generation].key}@halves")
            for earlier in [g for g, copy in entry.copies.items() if g < generation and copy.workers == {worker}]:
                self._drop_copy(entry, earlier)

    def worker_lost(self, worker: str) -> None:
        """Nothing lies on that worker any more."""
        with self.lock:
            for entry in self._segments.values():
                for copy in entry.copies.values():
                    self._left(copy, worker)
                    self.budget.release(f"{copy.key}@{worker}")  # also for one that was still on its way

    def resident(self, worker: str) -> frozenset[str]:
        """Recipes of the segments known to lie on a worker."""
        with self.lock:
            return frozenset(
                recipe
                for recipe, entry in self._segments.items()
                if any(worker in copy.workers for copy in entry.copies.values())
            )

    def segment(self, recipe: str) -> SegmentEntry | None:
        """What is known of a segment; None if nobody wants it."""
        with self.lock:
            return self._segments.get(recipe)

    def holders(self) -> list[Holder]:
        """See :func:`kvlab.runtime.accounts.holders`."""
        with self.lock:
            return holders(self._states, self._segments, self.now, self.leaving.nbytes())

    def own_bytes(self) -> dict[str, int]:
        """Bytes in memory of each state's segments that no older living state has."""
        with self.lock:
            return {name: own_bytes(entry, self._states, self._segments) for name, entry in self._states.items()}

    # -- prefixes

    def longest_prefix(self, namespace: str, ids: bytes) -> tuple[int, StateRecord | None]:
        """The longest state of ``namespace`` whose whole path is a prefix of ``ids``."""
        with self.lock:
            n_tokens, names = self._tree(namespace).longest(ids)
            return (n_tokens, self._states[names[0]].record) if n_tokens and names else (0, None)

    def overlap(self, namespace: str, ids: bytes) -> int:
        """Leading tokens of ``ids`` that some state of ``namespace`` has, wherever it ends."""
        with self.lock:
            return self._tree(namespace).overlap(ids)

    def _tree(self, namespace: str) -> PrefixTree:
        return self._prefixes.setdefault(namespace, PrefixTree())

    def clear(self) -> int:
        """Evict all states that are neither pinned nor leased nor in transit. Returns the bytes that are let go."""
        with self.lock:
            return sum(
                self.evict(state)
                for state, entry in self._states.items()
                if not entry.kept(self.now) and entry.phase is not Phase.IN_TRANSIT
            )


_EVICTING = {Phase.PLANNED: (Phase.EVICTED,), Phase.SPILLED: (Phase.EVICTED,)}
"""What is not in memory has nothing to become evictable; one in transit may not be evicted."""

_TO_EVICTED = {
    Phase.PLANNED: (Phase.EVICTED,),
    Phase.MATERIALIZED: (Phase.RESIDENT, Phase.EVICTABLE, Phase.EVICTED),
    Phase.RESIDENT: (Phase.EVICTABLE, Phase.EVICTED),
    Phase.IN_TRANSIT: (Phase.EVICTED,),
    Phase.SPILLED: (Phase.EVICTED,),
    Phase.EVICTABLE: (Phase.EVICTED,),
    Phase.EVICTED: (),
}
"""How a state that nobody can refer to any more goes, from wherever it is."""
