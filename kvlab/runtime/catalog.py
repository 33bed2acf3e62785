"""Γ: who holds what. States and segments by name, their copies on workers, their phases, pins and handles.

The catalog is the client-side truth about ownership. It decides nothing and moves nothing; it counts references and lets
a segment go when no living state has it in its path. Thread-safe; every method is short and does no I/O but releasing
Dask futures, which only enqueues.

One file a little over the usual length, because all of it changes the same counts under the same lock.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kvlab.errors import InvalidInput, StateGone
from kvlab.policy.eviction import EvictionPolicy
from kvlab.policy.workflow_aware import WorkflowAware
from kvlab.runtime.budget import Budget
from kvlab.runtime.evicting import Evictor
from kvlab.runtime.keys import segment_key
from kvlab.state.lifecycle import Phase, advance
from kvlab.state.prefixes import PrefixTree
from kvlab.state.records import SegmentRecord, StateRecord


@dataclass(slots=True)
class Copy:
    """One generation of a segment: the Dask future that holds it, and the workers where it is known to lie.

    ``made_ns`` tells one making of it from another: Dask makes it again under the same key where a worker took it along.
    """

    key: str
    future: Any
    workers: set[str] = field(default_factory=set)
    made_ns: int = 0


@dataclass(slots=True)
class SegmentEntry:
    """A segment that is wanted: its copies by generation, and who wants it.

    ``owners`` are the living states that have it in their path, and the actions that are using or making it.
    ``last_use`` is the moment of the last action on it: moments are counted by :attr:`Catalog.moment`.
    """

    recipe: str
    last_use: int = 0
    copies: dict[int, Copy] = field(default_factory=dict)
    owners: set[str] = field(default_factory=set)


@dataclass(slots=True)
class StateEntry:
    """A state's place in its life, who holds on to it, and the run that it belongs to."""

    record: StateRecord
    run: str = ""
    phase: Phase = Phase.RESIDENT
    handles: int = 0
    pinned: bool = False
    forgotten: bool = False


PhaseChanged = Callable[[StateEntry, Phase, Phase], None]


class Catalog:
    """States and segments of one lab."""

    def __init__(self, budget_bytes: int, phase_changed: PhaseChanged, policy: EvictionPolicy | None = None) -> None:
        self.lock = threading.RLock()
        self.evictor = Evictor(self, policy or WorkflowAware())
        self.budget = Budget(budget_bytes, self.holders, self.evictor.free)
        self.moment = 0
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
        """A revived state has its segments again."""
        with self.lock:
            if state in self._states and self._states[state].phase is Phase.PLANNED:
                self.move_to(state, Phase.MATERIALIZED, Phase.RESIDENT)

    def evict(self, state: str, *, forget: bool = False) -> int:
        """Let a state's own segments go; those that other living states share stay. Returns the bytes given back.

        Raises
        ------
        InvalidInput
            If the state is pinned.
        IllegalTransition
            If it is in transit.
        """
        with self.lock:
            entry = self.entry(state)
            if entry.pinned:
                raise InvalidInput(f"state {state} is pinned", hint="state.unpin() first", state=state)
            before = self.budget.used_bytes
            if entry.phase is not Phase.EVICTED:
                # One that is only planned has nothing to become evictable; one in transit may not be evicted.
                way = (Phase.EVICTED,) if entry.phase is Phase.PLANNED else (Phase.EVICTABLE, Phase.EVICTED)
                self.move_to(state, *way)
            self._let_go(entry.record)
            entry.forgotten = entry.forgotten or forget
            return before - self.budget.used_bytes

    def evict_segment(self, recipe: str) -> int:
        """Let a segment go that nobody uses, and all that continues it: the states that have it become evicted.

        They keep what comes before it on their path. Returns the bytes given back.
        """
        with self.lock:
            before = self.budget.used_bytes
            for state in [owner for owner in self._segments[recipe].owners if owner in self._states]:
                entry = self._states[state]
                if entry.phase is not Phase.EVICTED:  # one that lost what continues this segment is
                    self.move_to(state, Phase.EVICTABLE, Phase.EVICTED)
                self._tree(entry.record.namespace).remove(entry.record.path_ids, state)
                path = [segment.recipe for segment in entry.record.segments]
                self._disown(state, reversed(path[path.index(recipe) :]))
            return before - self.budget.used_bytes

    def idle_segments(self) -> list[tuple[SegmentEntry, list[StateEntry]]]:
        """Segments that may be evicted, and the states that have each: neither pinned nor in use nor in transit."""
        with self.lock:
            found = []
            for held in self._segments.values():
                states = [self._states[owner] for owner in held.owners if owner in self._states]
                idle = all(entry.phase in (Phase.RESIDENT, Phase.EVICTED) and not entry.pinned for entry in states)
                if held.copies and len(states) == len(held.owners) and idle:
                    found.append((held, states))
            return found

    def _let_go(self, record: StateRecord) -> None:
        self._tree(record.namespace).remove(record.path_ids, record.id)
        self._disown(record.id, [segment.recipe for segment in reversed(record.segments)])

    def _disown(self, owner: str, recipes: Iterable[str]) -> None:
        for recipe in recipes:
            held = self._segments.get(recipe)
            if held is None:
                continue
            held.owners.discard(owner)
            if not held.owners:
                for generation in list(held.copies):
                    self._drop_copy(held, generation)
                del self._segments[recipe]
                self.evictor.gone(recipe)

    # -- handles

    def hold(self, state: str) -> None:
        """One more handle refers to a state."""
        with self.lock:
            self.entry(state).handles += 1

    def handle_died(self, state: str) -> None:
        """A handle was garbage-collected. Only notes it: :meth:`reap` acts."""
        self._dropped_handles.append(state)

    def reap(self) -> None:
        """Forget states that no handle refers to any more, and give back their memory."""
        with self.lock:
            while self._dropped_handles:
                state = self._dropped_handles.popleft()
                entry = self._states.get(state)
                if entry is None:
                    continue
                entry.handles -= 1
                if entry.handles <= 0 and not entry.pinned:
                    self._let_go(entry.record)
                    for then in _TO_EVICTED[entry.phase]:
                        self.move_to(state, then)
                    del self._states[state]

    # -- segments

    def claim(self, action: str, recipes: Iterable[str]) -> None:
        """``action`` uses or makes these segments: they stay until it is done, whatever becomes of their states."""
        with self.lock:
            self.moment += 1
            for recipe in recipes:
                held = self._segments.setdefault(recipe, SegmentEntry(recipe))
                held.owners.add(action)
                held.last_use = self.moment
                self.evictor.used(recipe)

    def unclaim(self, action: str, recipes: Iterable[str]) -> None:
        """``action`` is done with these segments; those that no state has go."""
        with self.lock:
            self._disown(action, recipes)

    def next_key(self, recipe: str) -> tuple[int, str]:
        """Generation and key for a new attempt to make ``recipe``."""
        with self.lock:
            generation = self._generations.get(recipe, -1) + 1
            self._generations[recipe] = generation
            return generation, segment_key(recipe, generation, self.mark)

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

    def _drop_copy(self, entry: SegmentEntry, generation: int) -> None:
        copy = entry.copies.pop(generation)
        self.evictor.dropping(copy.key, copy.workers)
        self.budget.release(copy.key)
        self.budget.release_all(f"{copy.key}@")
        copy.future.release()

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
                if replica_bytes and worker not in copy.workers:
                    self.budget.hold(f"{key}@{worker}", replica_bytes)
                copy.workers.add(worker)
                copy.made_ns = made_ns or copy.made_ns

    def _left(self, copy: Copy, worker: str) -> None:
        """A copy is not on ``worker`` any more. What was reserved first stands for one of those that are left."""
        if worker not in copy.workers:
            return
        copy.workers.discard(worker)
        own = f"{copy.key}@{worker}"
        if self.budget.held(own) or not copy.workers:
            self.budget.release(own)
        else:
            self.budget.release(f"{copy.key}@{min(copy.workers)}")

    def placed(self, recipe: str, generation: int, worker: str, nbytes: int | None = None, *, made_ns: int = 0) -> None:
        """A copy lies on ``worker``, and takes ``nbytes`` if that is known by now. Unknown copies are ignored."""
        with self.lock:
            entry = self._segments.get(recipe)
            copy = entry.copies.get(generation) if entry is not None else None
            if copy is not None:
                copy.workers.add(worker)
                copy.made_ns = made_ns or copy.made_ns
                if nbytes is not None:
                    self.budget.reserve(copy.key, nbytes, f"segment {recipe[:12]}")

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

    def holders(self) -> list[tuple[str, int]]:
        """(state and its name, bytes that it alone or first holds), largest first."""
        with self.lock:
            names = {
                entry.record.id: f"{entry.record.id} {entry.record.name}".strip() for entry in self._states.values()
            }
            found = [(names[state], nbytes) for state, nbytes in self.own_bytes().items() if nbytes]
        return sorted(found, key=lambda item: -item[1])

    def own_bytes(self) -> dict[str, int]:
        """Bytes of each state's segments that no older living state has."""
        with self.lock:
            return {
                entry.record.id: sum(segment.nbytes for segment in entry.record.segments if self._first(segment, entry))
                for entry in self._states.values()
            }

    def _first(self, segment: SegmentRecord, entry: StateEntry) -> bool:
        held = self._segments.get(segment.recipe)
        states = [owner for owner in held.owners if owner in self._states] if held is not None else []
        return bool(states) and min(states, key=_number) == entry.record.id

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
        """Evict all states that are neither pinned nor in transit. Returns the bytes given back."""
        with self.lock:
            return sum(
                self.evict(state)
                for state, entry in self._states.items()
                if not entry.pinned and entry.phase is not Phase.IN_TRANSIT
            )


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


def _number(state: str) -> int:
    return int(state[1:])
