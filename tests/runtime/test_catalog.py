"""Γ: copies, owners, generations and handles; what is wanted stays, and all else goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.errors import IllegalTransition, InvalidInput, StateGone
from kvlab.runtime.catalog import Catalog
from kvlab.runtime.keys import segment_key
from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.state.lifecycle import Phase
from kvlab.state.records import Lineage, SegmentRecord, StateRecord
from kvlab.state.tokens import pack_ids

MODEL = ModelIdentity("tiny", "weights", "tokenizer")
CONFIG = KVConfig(layers=1, kv_heads=1, head_dim=1, dtype="float32", rope="{}", max_positions=64)
PER_TOKEN = CONFIG.bytes_per_token


class Future:
    """Stands for a Dask future: only its release is seen, and workers let go at once."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        self.released = 0
        self._let_go = let_go

    def release(self) -> None:
        self.released += 1
        self._let_go()


class World:
    """A catalog, and states made in it from paths like ``"doc/plan"`` (a segment a part, a token a letter)."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, str, str]] = []
        self.silent = False
        self.catalog = Catalog(
            10_000, lambda entry, now, then: self.phases.append((entry.record.id, str(now), str(then)))
        )
        self.futures: dict[str, Future] = {}

    def segment(self, path: str) -> SegmentRecord:
        parent, _, own = path.rpartition("/")
        start = len(path.replace("/", "")) - len(own)
        return SegmentRecord(path, parent or None, start, pack_ids(map(ord, own)), len(own), len(own) * PER_TOKEN)

    def copy(self, recipe: str, worker: str = "a") -> str:
        generation, key = self.catalog.next_key(recipe)
        self.catalog.budget.reserve(key, self.segment(recipe).nbytes, "test", device=worker)
        self.futures[key] = Future(lambda: None if self.silent else self.catalog.leaving.left(key, worker))
        self.catalog.add_copy(recipe, generation, self.futures[key]).workers.add(worker)
        return key

    def state(self, path: str, namespace: str = "", worker: str = "a") -> StateRecord:
        parts = path.split("/")
        segments = tuple(self.segment("/".join(parts[: i + 1])) for i in range(len(parts)))
        for segment in segments:
            if not self.catalog.copies(segment.recipe):
                self.copy(segment.recipe, worker)
        record = StateRecord(
            self.catalog.new_state_id(), path, MODEL, CONFIG, namespace, segments, Lineage("materialize"), "identity"
        )
        self.catalog.add(record)
        return record

    def held(self, record: StateRecord, n: int = 1) -> StateRecord:
        for _ in range(n):
            self.catalog.hold(record.id)
        return record

    @property
    def used_tokens(self) -> int:
        return self.catalog.budget.used_bytes // PER_TOKEN

    def consistent(self) -> None:
        """Memory is reserved for exactly the copies that are wanted, and all others were let go once."""
        living = {copy.key for e in self.catalog._segments.values() for copy in e.copies.values()}
        assert set(self.catalog.budget._reserved) == living
        assert {key for key, future in self.futures.items() if not future.released} == living
        assert max((future.released for future in self.futures.values()), default=0) <= 1
        assert all(entry.owners for entry in self.catalog._segments.values())


@pytest.fixture
def world() -> World:
    return World()


def test_shared_segments_are_held_once_and_go_with_their_last_state(world: World) -> None:
    base, left, right = world.state("doc"), world.state("doc/left"), world.state("doc/right")
    assert world.used_tokens == 3 + 4 + 5
    assert world.catalog.evict(base.id) == 0
    assert world.used_tokens == 12
    assert world.catalog.evict(left.id) == 4 * PER_TOKEN
    assert world.catalog.evict(right.id) == 8 * PER_TOKEN
    assert world.used_tokens == 0
    world.consistent()
    assert world.catalog.evict(right.id) == 0


def test_a_claim_keeps_segments_whatever_becomes_of_their_states(world: World) -> None:
    state = world.state("doc/plan")
    world.catalog.claim("action-1", ["doc", "doc/plan", "doc/plan/new"])
    world.catalog.claim("action-2", ["doc"])
    assert world.catalog.evict(state.id) == 0
    assert world.used_tokens == 7
    world.catalog.unclaim("action-1", ["doc", "doc/plan", "doc/plan/new"])
    assert world.used_tokens == 3
    assert world.catalog.copies("doc/plan") == {}
    world.catalog.unclaim("action-2", ["doc", "never seen"])
    assert world.used_tokens == 0
    world.consistent()


def test_what_an_action_made_stays_if_a_state_took_it_before_the_claim_ended(world: World) -> None:
    world.catalog.claim("action", ["doc"])
    key = world.copy("doc")
    world.state("doc")
    world.catalog.unclaim("action", ["doc"])
    assert world.futures[key].released == 0
    world.consistent()


def test_no_generation_is_used_twice_and_copies_go_one_by_one(world: World) -> None:
    state = world.state("doc")
    keys = [segment_key("doc", 0, world.catalog.mark), world.copy("doc", "b"), world.copy("doc", "c")]
    assert keys == [f"kv-doc.g{n}.{world.catalog.mark}" for n in range(3)]
    assert list(world.catalog.copies("doc")) == [0, 1, 2]
    assert world.used_tokens == 9
    world.catalog.discard_copy("doc", 1)
    world.catalog.discard_copy("doc", 1)
    world.catalog.discard_copy("unknown", 0)
    assert world.used_tokens == 6
    assert world.futures[keys[1]].released == 1
    world.catalog.evict(state.id)
    world.consistent()
    # Dask may still know the old keys: an attempt after this must not meet them.
    assert world.catalog.next_key("doc") == (3, f"kv-doc.g3.{world.catalog.mark}")
    assert world.catalog.next_key("other") == (0, f"kv-other.g0.{world.catalog.mark}")


@pytest.mark.parametrize("known_first", [False, True], ids=["lost first", "known first"])
def test_a_replica_whose_origin_is_lost_is_counted_once(world: World, known_first: bool) -> None:
    """The first copy may go between the replica's arrival and the news of it, or just after."""
    record, nbytes = world.state("doc"), world.segment("doc").nbytes
    budget, key = world.catalog.budget, segment_key("doc", 0, world.catalog.mark)
    budget.reserve(f"{key}@b", nbytes, "test", device="b")
    if known_first:
        world.catalog.located("doc", key, "b", present=True, replica_bytes=nbytes)
    world.catalog.worker_lost("a")
    world.catalog.placed("doc", 0, "b")
    assert (budget.used_bytes, budget.used_on("a"), budget.used_on("b")) == (nbytes, 0, nbytes)
    world.catalog.located("doc", key, "c", present=True, replica_bytes=nbytes)
    assert budget.used_bytes == 2 * nbytes
    world.catalog.worker_lost("b")
    assert (budget.used_bytes, budget.used_on("c")) == (nbytes, nbytes)
    world.catalog.evict(record.id)
    world.catalog.leaving.left(key, "c")
    assert budget.used_bytes == 0


def test_generations_are_distinct_under_threads(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: world.catalog.next_key("doc")[1], range(400)))
    assert len(set(keys)) == 400


def test_residence_follows_placements_of_the_copy_that_is_meant(world: World) -> None:
    world.state("doc/plan")
    key = segment_key("doc", 0, world.catalog.mark)
    assert world.catalog.resident("a") == {"doc", "doc/plan"}
    world.catalog.located("doc", key, "b", present=True)
    assert world.catalog.resident("b") == {"doc"}
    world.catalog.located("doc", segment_key("doc", 7, world.catalog.mark), "b", present=False)
    assert world.catalog.resident("b") == {"doc"}
    world.catalog.located("doc", key, "b", present=False)
    world.catalog.located("unknown", "kv-unknown.g0", "b", present=True)
    assert world.catalog.resident("b") == frozenset()
    world.copy("doc", "b")
    world.catalog.worker_lost("a")
    assert world.catalog.resident("a") == frozenset()
    assert world.catalog.resident("b") == {"doc"}
    assert world.used_tokens == 10
    world.consistent()


def test_handles_are_counted_and_the_last_one_takes_the_state(world: World) -> None:
    state = world.held(world.state("doc/plan"), 2)
    keeper = world.held(world.state("doc"))
    world.catalog.handle_died(state.id)
    assert [entry.record.id for entry in world.catalog.states()] == [state.id, keeper.id]
    world.catalog.handle_died(state.id)
    # A finalizer may run inside any lock: nothing happens until somebody reaps.
    assert world.used_tokens == 7
    world.catalog.reap()
    assert world.used_tokens == 3
    assert [entry.record.id for entry in world.catalog.states()] == [keeper.id]
    with pytest.raises(StateGone, match=state.id) as caught:
        world.catalog.entry(state.id)
    assert caught.value.hint
    with pytest.raises(StateGone):
        world.catalog.hold(state.id)
    world.catalog.handle_died(state.id)
    world.catalog.reap()
    world.consistent()


def test_a_state_that_nobody_holds_ends_as_evicted(world: World) -> None:
    resident, evicted, planned = (world.held(world.state(path)) for path in ("one", "two", "three"))
    world.catalog.evict(evicted.id)
    world.catalog.evict(planned.id)
    world.catalog.revive(planned)
    world.phases.clear()
    for record in (resident, evicted, planned):
        world.catalog.handle_died(record.id)
    world.catalog.reap()
    assert world.phases == [
        (resident.id, "resident", "evictable"),
        (resident.id, "evictable", "evicted"),
        (planned.id, "planned", "evicted"),
    ]
    assert world.used_tokens == 0
    world.consistent()


@pytest.mark.parametrize("phase", list(Phase))
def test_a_state_can_be_reaped_from_every_phase(world: World, phase: Phase) -> None:
    state = world.held(world.state("doc"))
    entry = world.catalog.entry(state.id)
    if phase is Phase.EVICTED:
        world.catalog.evict(state.id)
    entry.phase = phase
    world.catalog.handle_died(state.id)
    world.catalog.reap()
    assert world.catalog.states() == []
    assert entry.phase is Phase.EVICTED
    world.consistent()


def test_a_pinned_state_stays_without_handles_and_is_not_evicted(world: World) -> None:
    state, other = world.held(world.state("doc")), world.state("more")
    world.catalog.entry(state.id).pinned = True
    world.catalog.handle_died(state.id)
    world.catalog.reap()
    with pytest.raises(InvalidInput, match="pinned") as caught:
        world.catalog.evict(state.id)
    assert caught.value.hint == "state.unpin() first"
    assert world.catalog.clear() == len("more") * PER_TOKEN
    assert world.catalog.entry(other.id).phase is Phase.EVICTED
    assert world.used_tokens == len("doc")


def test_an_evicted_state_is_wanted_again_and_settles(world: World) -> None:
    state = world.state("doc/plan")
    world.catalog.evict(state.id)
    assert world.catalog.longest_prefix("", state.path_ids) == (0, None)
    world.catalog.revive(state)
    assert world.catalog.entry(state.id).phase is Phase.PLANNED
    assert world.catalog.longest_prefix("", state.path_ids) == (7, state)
    # Its segments are wanted, so one that is made now stays when the maker is done.
    world.catalog.claim("action", ["doc"])
    key = world.copy("doc")
    world.catalog.unclaim("action", ["doc"])
    assert world.futures[key].released == 0
    world.catalog.settle(state.id)
    world.catalog.settle(state.id)
    world.catalog.revive(state)
    assert [then for _, _, then in world.phases] == ["evictable", "evicted", "planned", "materialized", "resident"]
    world.catalog.settle("s999")
    world.consistent()


def test_a_state_evicted_with_its_lineage_is_gone(world: World) -> None:
    state = world.state("doc")
    world.catalog.evict(state.id, forget=True)
    assert world.catalog.entry(state.id).forgotten
    for use in (world.catalog.revive, lambda record: world.catalog.require_living(record.id)):
        with pytest.raises(StateGone, match="lineage forgotten"):
            use(state)
    later = world.state("later")
    world.catalog.evict(later.id)
    world.catalog.require_living(later.id)
    world.catalog.evict(later.id, forget=True)
    with pytest.raises(StateGone):
        world.catalog.require_living(later.id)


def test_phases_move_only_as_allowed(world: World) -> None:
    state = world.state("doc")
    world.catalog.move_to(state.id, Phase.IN_TRANSIT, Phase.RESIDENT)
    with pytest.raises(IllegalTransition, match=state.id):
        world.catalog.move_to(state.id, Phase.PLANNED)
    assert world.catalog.entry(state.id).phase is Phase.RESIDENT
    assert world.phases == [(state.id, "resident", "in transit"), (state.id, "in transit", "resident")]
    world.catalog.move_to(state.id, Phase.IN_TRANSIT)
    with pytest.raises(IllegalTransition, match="in transit"):
        world.catalog.evict(state.id)


def test_a_state_that_did_not_come_is_what_its_segments_are(world: World) -> None:
    catalog = world.catalog
    whole, half, none, busy = (world.held(world.state(path)) for path in ("a/b", "c/d", "e", "f"))
    for record in (whole, half, none, busy):
        catalog.evict(record.id)
        catalog.revive(record)
    for recipe in ("a", "a/b", "c"):
        world.copy(recipe)
    catalog.begin("another", ["f"])
    for record in (whole, half, none, busy):
        catalog.give_up(record.id)
        catalog.give_up(record.id)
    phases = [catalog.entry(record.id).phase for record in (whole, half, none, busy)]
    assert phases == [Phase.RESIDENT, Phase.EVICTED, Phase.EVICTED, Phase.PLANNED]
    assert catalog.copies("c")  # what is there stays; it is used when the rest comes back
    assert [catalog.segment(recipe) for recipe in ("c/d", "e")] == [None, None]
    assert catalog.longest_prefix("", half.path_ids)[1] is None
    catalog.end_all("another")
    catalog.give_up_all("")
    assert catalog.entry(busy.id).phase is Phase.EVICTED
    for record in (half, none):
        catalog.revive(record)
        assert catalog.entry(record.id).phase is Phase.PLANNED


def test_prefixes_are_found_within_a_namespace_alone(world: World) -> None:
    short, long = world.state("doc"), world.state("doc/plan")
    ids = pack_ids(map(ord, "docplanet"))
    assert world.catalog.longest_prefix("", ids) == (7, long)
    assert world.catalog.longest_prefix("other", ids) == (0, None)
    assert world.catalog.overlap("", pack_ids(map(ord, "docplum"))) == 5
    assert world.catalog.overlap("other", ids) == 0
    world.catalog.evict(long.id)
    assert world.catalog.longest_prefix("", ids) == (3, short)
    assert world.catalog.longest_prefix("", pack_ids(map(ord, "do"))) == (0, None)


def test_own_bytes_go_to_the_oldest_holder_and_the_table_of_holders_is_sorted(world: World) -> None:
    first = world.state("doc/plan")
    states = [world.state(f"doc/plan/{'x' * n}") for n in range(1, 12)]
    own = world.catalog.own_bytes()
    assert own[first.id] == 7 * PER_TOKEN
    assert [own[s.id] for s in states] == [n * PER_TOKEN for n in range(1, 12)]
    assert sum(own.values()) == world.catalog.budget.used_bytes
    most = world.catalog.holders()[0]
    assert (most.name, most.nbytes) == (f"{states[-1].id} {states[-1].name}", 11 * PER_TOKEN)
    world.catalog.evict(first.id)
    own = world.catalog.own_bytes()
    # Numbers, not texts: s10 is younger than s2.
    assert own[states[0].id] == 8 * PER_TOKEN
    assert sum(own.values()) == world.catalog.budget.used_bytes
    assert first.id not in {one.name.split()[0] for one in world.catalog.holders()}


def test_the_phase_listener_may_ask_the_catalog(world: World) -> None:
    state = world.state("doc")
    seen: list[int] = []
    world.catalog._phase_changed = lambda *_: seen.append(len(world.catalog.states()))
    done = threading.Thread(target=lambda: world.catalog.evict(state.id))
    done.start()
    done.join(5)
    assert seen == [1, 1]


paths = st.sampled_from(["d", "d/a", "d/a/b", "d/c", "e", "e/a"])
actions = st.lists(
    st.tuples(st.sampled_from(["state", "evict", "drop", "claim", "unclaim", "revive", "lost", "pin", "clear"]), paths),
    max_size=30,
)


@given(actions)
def test_whatever_happens_memory_is_held_for_what_is_wanted_and_for_nothing_else(steps: list[tuple[str, str]]) -> None:
    world = World()
    held: dict[str, StateRecord] = {}
    claimed: dict[str, list[str]] = {}
    catalog = world.catalog
    for step, path in steps:
        record = held.get(path)
        if step == "state" and record is None:
            held[path] = world.held(world.state(path))
        elif step == "claim":
            parts = path.split("/")
            claimed.setdefault(path, ["/".join(parts[: i + 1]) for i in range(len(parts))])
            catalog.claim(f"act-{path}", claimed[path])
        elif step == "unclaim" and path in claimed:
            catalog.unclaim(f"act-{path}", claimed.pop(path))
        elif step == "lost":
            catalog.worker_lost("a")
        elif step == "clear":
            catalog.clear()
        elif record is not None:
            _to_state(catalog, step, record)
            if step == "drop":
                del held[path]
        world.consistent()
        assert {e.record.id for e in catalog.states()} >= {r.id for r in held.values()}
    for entry in catalog.states():
        entry.pinned = False
    catalog.clear()
    for path, recipes in claimed.items():
        catalog.unclaim(f"act-{path}", recipes)
    for entry in catalog.states():
        if entry.phase is Phase.PLANNED:
            catalog.settle(entry.record.id)
    catalog.clear()
    assert catalog.budget.used_bytes == 0
    assert catalog._segments == {}
    world.consistent()


def _to_state(catalog: Catalog, step: str, record: StateRecord) -> None:
    does: dict[str, Callable[[], Any]] = {
        "evict": lambda: catalog.evict(record.id),
        "revive": lambda: catalog.revive(record),
        "pin": lambda: setattr(catalog.entry(record.id), "pinned", True),
        "drop": lambda: (catalog.handle_died(record.id), catalog.reap()),
    }
    try:
        does.get(step, lambda: None)()
    except InvalidInput:
        assert catalog.entry(record.id).pinned
