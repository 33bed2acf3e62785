"""Room is made by evicting what nobody uses, in the policy's order; answers stay what they were."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any

import pytest

from kvlab.errors import NoRoom
from kvlab.policy.lru import LRU
from kvlab.runtime import evicting
from kvlab.runtime.catalog import Catalog
from kvlab.state.lifecycle import Phase
from kvlab.workloads import NAMES, build

_spec = importlib.util.spec_from_file_location("catalog_world", Path(__file__).with_name("test_catalog.py"))
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
World, PER_TOKEN = _module.World, _module.PER_TOKEN


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its copies lie on workers that never say anything."""
    monkeypatch.setattr(evicting, "LEAVING_SECONDS", 0.01)
    made = World()
    made.catalog = Catalog(10 * PER_TOKEN, made.catalog._phase_changed, LRU())
    return made


def phase(world: Any, record: Any) -> Phase:
    found: Phase = world.catalog.entry(record.id).phase
    return found


def use(world: Any, *recipes: str) -> None:
    world.catalog.claim("action", recipes)
    world.catalog.unclaim("action", recipes)


def test_what_was_used_longest_ago_goes_when_room_is_needed(world: Any) -> None:
    old, new = world.state("aaaa"), world.state("bbbb")
    use(world, "aaaa")
    use(world, "bbbb")
    world.state("cccc")
    assert (phase(world, old), phase(world, new)) == (Phase.EVICTED, Phase.RESIDENT)
    assert world.used_tokens == 8
    world.consistent()


def test_leaves_go_before_what_they_continue_and_parents_stay_usable(world: Any) -> None:
    base, leaf = world.state("doc"), world.state("doc/leaf")
    use(world, "doc", "doc/leaf")
    world.state("xxxxx")
    assert (phase(world, base), phase(world, leaf)) == (Phase.RESIDENT, Phase.EVICTED)
    assert world.used_tokens == 8
    world.consistent()


def test_a_segment_goes_with_all_that_continues_it(world: Any) -> None:
    leaf = world.state("doc/leaf")
    assert world.catalog.evict_segment("doc") == 7 * PER_TOKEN
    assert phase(world, leaf) is Phase.EVICTED
    world.consistent()


def test_what_an_evicted_leaf_left_can_go_too(world: Any) -> None:
    leaf = world.state("doc/leaf")
    world.state("12345678")
    assert (phase(world, leaf), world.used_tokens) == (Phase.EVICTED, 8)
    world.consistent()


def test_pinned_claimed_and_travelling_states_stay(world: Any) -> None:
    pinned, claimed, travelling = world.state("aaa"), world.state("bbb"), world.state("ccc")
    world.catalog.entry(pinned.id).pinned = True
    world.catalog.claim("action", ["bbb"])
    world.catalog.move_to(travelling.id, Phase.IN_TRANSIT)
    with pytest.raises(NoRoom, match="pinned or in use"):
        world.copy("ddd")
    assert world.used_tokens == 9
    world.catalog.unclaim("action", ["bbb"])
    world.copy("dd")
    assert phase(world, claimed) is Phase.EVICTED


def test_room_stays_reserved_until_workers_have_let_go(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evicting, "LEAVING_SECONDS", 20)
    world.state("aaaaaaaa")
    (key,) = world.futures
    seen: list[int] = []

    def let_go() -> None:
        seen.append(world.used_tokens)
        world.catalog.evictor.left(key, "b")
        world.catalog.evictor.left(key, "a")

    threading.Timer(0.2, let_go).start()
    world.catalog.budget.reserve("new", 5 * PER_TOKEN, "test")
    assert seen == [8]
    assert world.used_tokens == 5


def test_a_worker_that_is_gone_has_let_everything_go(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evicting, "LEAVING_SECONDS", 20)
    world.state("aaaaaaaa")
    threading.Timer(0.1, lambda: world.catalog.evictor.left(None, "a")).start()
    world.catalog.budget.reserve("new", 5 * PER_TOKEN, "test")
    assert world.used_tokens == 5


def test_what_is_needed_only_if_there_is_room_evicts_nobody(world: Any) -> None:
    state = world.state("aaaaaaaa")
    with pytest.raises(NoRoom):
        world.catalog.budget.reserve("ahead", 4 * PER_TOKEN, "prefetch", evict=False)
    assert phase(world, state) is Phase.RESIDENT


def test_an_evicted_state_is_revived_and_can_be_let_go_again(world: Any) -> None:
    state = world.held(world.state("doc/leaf"))
    world.catalog.evict_segment("doc/leaf")
    assert world.used_tokens == 3
    world.catalog.revive(state)
    world.copy("doc/leaf")
    world.catalog.settle(state.id)
    assert phase(world, state) is Phase.RESIDENT
    world.catalog.evict_segment("doc/leaf")
    world.catalog.handle_died(state.id)
    world.catalog.reap()
    assert world.used_tokens == 0
    world.consistent()


def test_a_graph_says_what_is_used_next(world: Any) -> None:
    world.catalog.evictor.policy = __import__("kvlab.policy.belady", fromlist=["Belady"]).Belady()
    soon, late, never = world.state("aaa"), world.state("bbb"), world.state("ccc")
    uses = {soon.id: 1.0, late.id: 9.0, never.id: float("inf")}
    with world.catalog.evictor.knowing(uses.get):
        world.copy("ddd")
        assert [phase(world, one) for one in (soon, late, never)] == [Phase.RESIDENT, Phase.RESIDENT, Phase.EVICTED]
        world.copy("eee")
    assert [phase(world, one) for one in (soon, late)] == [Phase.RESIDENT, Phase.EVICTED]


# -- real runs


DOCUMENT = " ".join(f"Sentence {number} says that caches are thrown away." for number in range(12))


@pytest.mark.parametrize(
    "policy", ["workflow", pytest.param("lru", marks=pytest.mark.slow), pytest.param("arc", marks=pytest.mark.slow)]
)
def test_answers_under_a_small_budget_are_those_of_a_large_one(policy: str, make_lab: Any) -> None:
    flows = [build(name, DOCUMENT, max_new_tokens=4) for name in NAMES]
    whole, most = [], 0
    with make_lab(workers=1, kv_budget="1 GiB") as lab:
        for flow in flows:
            run = lab.run(flow).wait()
            whole.append({name: run[name].token_ids for name in flow.agents})
            most = max(most, _peak(run))
            del run
            lab.clear()
    n_evicted = 0
    limit = 45 * most // 100
    with make_lab(workers=1, kv_budget=limit, eviction=policy) as lab:
        for flow, before in zip(flows, whole, strict=True):
            run = lab.run(flow).wait()
            assert {name: run[name].token_ids for name in flow.agents} == before, flow.name
            assert _peak(run) <= limit, flow.name
            n_evicted += sum(row["phase"] == "evicted" for row in run.tables["states"].to_pylist())
    assert n_evicted


def _peak(run: Any) -> int:
    """Bytes of K/V that the only worker held at most, by its own samples."""
    return max(row["kv_unique_bytes"] or 0 for row in run.tables["memory"].to_pylist())
