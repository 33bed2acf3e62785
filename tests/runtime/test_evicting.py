"""Room is made by evicting what nobody uses, in the policy's order; answers stay what they were."""

from __future__ import annotations

import importlib.util
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvlab.bench.pressure import side_by_side
from kvlab.cost.model import PrefillCurve
from kvlab.errors import IllegalTransition, InvalidInput, NoRoom, StateGone
from kvlab.policy.eviction import NEVER, eviction_policy
from kvlab.policy.lru import LRU
from kvlab.runtime import leaving
from kvlab.runtime.catalog import Catalog
from kvlab.runtime.conductor import Conductor
from kvlab.runtime.units import units_of
from kvlab.state.lifecycle import Phase
from kvlab.workflow import Workflow
from kvlab.workloads import NAMES, build

_spec = importlib.util.spec_from_file_location("catalog_world", Path(__file__).with_name("test_catalog.py"))
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
World, PER_TOKEN = _module.World, _module.PER_TOKEN


@pytest.fixture
def world() -> Any:
    """Room for ten tokens; its workers let go at once."""
    made = World()
    made.catalog = Catalog(10 * PER_TOKEN, made.catalog._phase_changed, LRU())
    return made


def phase(world: Any, record: Any) -> Phase:
    found: Phase = world.catalog.entry(record.id).phase
    return found


def use(world: Any, *recipes: str) -> None:
    world.catalog.begin("action", recipes)
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
    with pytest.raises(NoRoom) as caught:
        world.copy("ddd")
    assert [(name, why) for name, _, why in caught.value.data["held"]] == [
        (f"{pinned.id} aaa", "pinned"),
        (f"{claimed.id} bbb", "in use by action"),
        (f"{travelling.id} ccc", "in transit"),
    ]
    assert all(nbytes == 3 * PER_TOKEN for _, nbytes, _ in caught.value.data["held"])
    assert f"{claimed.id} bbb 0.0 MiB (in use by action)" in str(caught.value)
    assert world.used_tokens == 9
    world.catalog.unclaim("action", ["bbb"])
    world.copy("dd")
    assert phase(world, claimed) is Phase.EVICTED


def test_a_lease_keeps_a_state_until_its_deadline_and_no_longer(world: Any) -> None:
    now = 100.0
    world.catalog._clock = lambda: now
    leased = world.held(world.state("aaaaaa"))
    _, deadline = world.catalog.keeping.lease(leased.id, 30)
    world.catalog.keeping.lease(leased.id, 5)
    assert deadline == 130
    now = 129.5
    with pytest.raises(NoRoom, match=r"leased for 0\.5 s more"):
        world.copy("bbbbbb")
    with pytest.raises(InvalidInput, match="leased"):
        world.catalog.evict(leased.id)
    world.catalog.handle_died(leased.id)
    world.catalog.reap()
    assert phase(world, leased) is Phase.RESIDENT  # a lease needs no handle
    now = 130.0
    world.copy("bbbbbb")
    assert world.used_tokens == 6
    with pytest.raises(StateGone):
        world.catalog.entry(leased.id)


def test_a_lease_that_is_given_back_counts_no_more(world: Any) -> None:
    state = world.state("aaaaaa")
    number, _ = world.catalog.keeping.lease(state.id, 1000)
    assert 0 < world.catalog.keeping.seconds_left(state.id, number) <= 1000
    world.catalog.keeping.end(state.id, number)
    world.catalog.keeping.end(state.id, number)
    assert world.catalog.keeping.seconds_left(state.id, number) == 0
    world.copy("bbbbbb")
    assert phase(world, state) is Phase.EVICTED
    for forbidden in (
        lambda: world.catalog.keeping.lease(state.id, 1),
        lambda: world.catalog.keeping.pin(state.id, pinned=True),
    ):
        with pytest.raises(IllegalTransition, match="only what is in memory"):
            forbidden()


def test_each_device_has_a_limit_of_its_own_and_only_what_lies_there_goes(world: Any) -> None:
    world.catalog.budget.device_limit_bytes = 5 * PER_TOKEN
    here, there = world.state("aaa"), world.state("bbb", worker="b")
    assert [world.catalog.budget.used_on(name) for name in "ab"] == [3 * PER_TOKEN] * 2
    with pytest.raises(NoRoom, match="of KV memory on a;") as caught:
        world.catalog.budget.reserve("x", 4 * PER_TOKEN, "test", device="a", evict=False)
    assert (caught.value.data["device"], caught.value.data["free_bytes"]) == ("a", 2 * PER_TOKEN)
    assert [name for name, _, _ in caught.value.data["held"]] == [f"{here.id} aaa"]
    world.copy("ccc", worker="b")
    assert (phase(world, here), phase(world, there)) == (Phase.RESIDENT, Phase.EVICTED)
    assert world.used_tokens == 6


def test_what_a_lost_worker_had_given_to_map_counts_where_it_is_now(world: Any) -> None:
    world.state("aaa")
    world.catalog.located("aaa", next(iter(world.futures)), "b", present=True)
    world.catalog.worker_lost("a")
    assert [world.catalog.budget.used_on(name) for name in "ab"] == [0, 3 * PER_TOKEN]


def test_a_state_that_is_let_go_counts_until_workers_say_so(world: Any) -> None:
    world.silent = True
    state = world.held(world.state("aaaaaa"))
    (key,) = world.futures
    world.catalog.handle_died(state.id)
    world.catalog.reap()
    assert world.used_tokens == 6
    world.catalog.leaving.left(key, "a")
    assert world.used_tokens == 0


def test_what_is_more_than_everything_evicts_nothing(world: Any) -> None:
    state = world.state("aaaaaa")
    with pytest.raises(NoRoom, match="more than all"):
        world.catalog.budget.reserve("x", 11 * PER_TOKEN, "more than all")
    assert phase(world, state) is Phase.RESIDENT


def test_room_stays_reserved_until_workers_have_let_go(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LEAVING_SECONDS", 20)
    world.silent = True
    world.state("aaaaaaaa")
    (key,) = world.futures
    seen: list[int] = []

    def let_go() -> None:
        seen.append(world.used_tokens)
        world.catalog.leaving.left(key, "b")
        world.catalog.leaving.left(key, "a")

    threading.Timer(0.2, let_go).start()
    world.catalog.budget.reserve("new", 5 * PER_TOKEN, "test")
    assert seen == [8]
    assert world.used_tokens == 5


def test_a_worker_that_is_gone_has_let_everything_go(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LEAVING_SECONDS", 20)
    world.silent = True
    world.state("aaaaaaaa")
    threading.Timer(0.1, lambda: world.catalog.leaving.left(None, "a")).start()
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


def test_each_segment_costs_what_its_own_model_takes(world: Any) -> None:
    """Of two alike, the one whose model computes quickly goes, whichever was used last; and the price says how much."""
    evictor = world.catalog.evictor
    evictor.policy = eviction_policy("workflow")
    quick, slow = (replace(_module.MODEL, name=name, weights=name) for name in ("quick", "slow"))
    evictor.prices = {quick: PrefillCurve(0.5, 1.0, 0.0, 1), slow: PrefillCurve(4.0, 3.0, 0.5, 1)}
    records = {}
    for model in (slow, quick):
        record = world.state(model.name[0] * 4)
        world.catalog.entry(record.id).record = records[model] = replace(record, model=model)
    prices = {one.key: (one.seconds, one.fixed_seconds) for one in evictor._candidates(None)}
    assert prices == {"qqqq": (4.0, 0.5), "ssss": (3.0 * 4 + 0.5 * 4 * 2, 4.0)}
    with evictor.knowing({record.id: 3.0 for record in records.values()}.get):
        world.copy("xxxx")
    assert [phase(world, records[model]) for model in (quick, slow)] == [Phase.EVICTED, Phase.RESIDENT]


def test_what_is_only_planned_keeps_nothing(world: Any) -> None:
    base, leaf = world.held(world.state("doc")), world.held(world.state("doc/leaf"))
    world.catalog.evict_segment("doc/leaf")
    world.catalog.revive(leaf)
    world.copy("12345678")
    assert (phase(world, base), phase(world, leaf)) == (Phase.EVICTED, Phase.EVICTED)
    assert world.used_tokens == 8


def test_nobody_goes_where_all_that_may_go_is_not_enough(world: Any) -> None:
    idle = world.state("aaaa")
    world.state("bbbb")
    world.catalog.claim("action", ["bbbb"])
    with pytest.raises(NoRoom):
        world.copy("1234567")
    assert (phase(world, idle), world.used_tokens) == (Phase.RESIDENT, 8)


def test_nobody_goes_in_vain(world: Any) -> None:
    small, large, last = world.state("aa"), world.state("bbbbb"), world.state("ccc")
    for recipe in ("aa", "bbbbb", "ccc"):
        use(world, recipe)
    world.copy("ddddd")
    assert [phase(world, one) for one in (small, large, last)] == [Phase.RESIDENT, Phase.EVICTED, Phase.RESIDENT]


def test_what_goes_with_what_it_continues_is_not_spared(world: Any) -> None:
    base, leaf = world.state("docum"), world.state("docum/le")
    world.copy("12345678")
    assert (phase(world, base), phase(world, leaf), world.used_tokens) == (Phase.EVICTED, Phase.EVICTED, 8)


def test_only_what_begins_is_a_use(world: Any) -> None:
    old, new = world.state("aaaa"), world.state("bbbb")
    use(world, "aaaa")
    use(world, "bbbb")
    world.catalog.claim("one that finds no room", ["aaaa"])
    assert not world.catalog.at_work
    world.catalog.unclaim("one that finds no room", ["aaaa"])
    world.state("cccc")
    assert (phase(world, old), phase(world, new)) == (Phase.EVICTED, Phase.RESIDENT)
    ended = world.catalog.n_ended
    world.catalog.begin("action", ["bbbb"])
    assert world.catalog.at_work
    world.catalog.unclaim("action", ["bbbb"])
    assert (world.catalog.at_work, world.catalog.n_ended) == (False, ended + 1)
    world.catalog.begin("run/1", ["bbbb"])
    world.catalog.begin("run2/1", ["bbbb"])
    world.catalog.end_all("run/")
    assert world.catalog.at_work
    world.catalog.end_all("run2/")
    assert not world.catalog.at_work
    world.state("dddd12")
    world.consistent()


# -- real runs

NEW_TOKENS = 3
DOCUMENT = " ".join(f"Sentence {number} says that caches are thrown away." for number in range(12))


@pytest.fixture(scope="module")
def tight(make_lab: Any) -> Any:
    """One worker, no disk; tests set its budget."""
    with make_lab(workers=1, spill_bytes=0, kv_budget="1 GiB") as lab:
        yield lab


@contextmanager
def limited(lab: Any, limit: int) -> Any:
    """Inside the block the lab has room for ``limit`` bytes, and is empty before and after."""
    budget = lab.core.catalog.budget
    before, budget.limit_bytes = budget.limit_bytes, limit
    try:
        yield
    finally:
        budget.limit_bytes = before
        lab.clear()


def answers(run: Any, flow: Any) -> dict[str, Any]:
    return {name: run[name].token_ids for name in flow.agents}


def several(name: str, n_documents: int, **keywords: int) -> Any:
    texts = [f"{number}. {DOCUMENT[: 150 + 20 * number]}" for number in range(n_documents)]
    return side_by_side([build(name, text, max_new_tokens=NEW_TOKENS, **keywords) for text in texts])


def alone(lab: Any, flow: Any) -> tuple[dict[str, Any], int]:
    """Answers with room for everything, and what the largest of its agents takes by itself: its path and new tokens."""
    run = lab.run(flow).wait()
    per_token = lab.core.config.bytes_per_token
    most = max(run[name].state.n_tokens + NEW_TOKENS for name in flow.agents) * per_token
    found = answers(run, flow)
    del run
    lab.clear()
    return found, most


@pytest.mark.parametrize(
    ("name", "keywords"), [("tree", {"depth": 2, "width": 3}), ("debate", {"rounds": 2}), ("chain", {"agents": 3})]
)
@pytest.mark.parametrize(
    "policy", ["workflow", pytest.param("lru", marks=pytest.mark.slow), pytest.param("belady", marks=pytest.mark.slow)]
)
def test_with_room_for_its_largest_agent_a_run_comes_to_its_end(
    tight: Any, name: str, keywords: dict[str, int], policy: str
) -> None:
    flow = several(name, 3, **keywords)
    expected, most = alone(tight, flow)
    tight.core.catalog.evictor.policy = eviction_policy(policy)
    with limited(tight, most):
        run = tight.run(flow).wait()
        assert answers(run, flow) == expected
        assert _peak(run) <= most
        started = [row["action"] for row in run.tables["operators"].to_pylist()]
        assert len(started) == len(set(started))
        edges = [row["edge"] for row in run.tables["edges"].to_pylist()]
        assert len(edges) == len(set(edges))  # what had to wait is told once, when it is done
        del run
    assert tight.core.catalog.budget.used_bytes == 0


def test_what_does_not_fit_alone_says_what_it_needs_and_who_has_it(tight: Any) -> None:
    flow = several("chain", 2, agents=3)
    expected, most = alone(tight, flow)
    assert expected
    short = most - 5 * tight.core.config.bytes_per_token
    with limited(tight, short):
        run = tight.run(flow)
        with pytest.raises(NoRoom, match=r"action .* needs .* MiB of KV memory; .* are free") as caught:
            run.wait()
        told = caught.value.data
        mine = [nbytes for _, nbytes, why in told["held"] if "in use by" in why]
        assert told["need_bytes"] + sum(mine) > short
        del run
    assert tight.core.catalog.budget.used_bytes == 0


def test_two_runs_take_turns_where_there_is_room_for_one_agent(tight: Any) -> None:
    flows = [several("tree", 2, depth=2, width=2), several("debate", 2, rounds=2)]
    known = [alone(tight, flow) for flow in flows]
    with limited(tight, max(most for _, most in known)):
        runs = [tight.run(flow) for flow in flows]
        for run, flow, (expected, _) in zip(runs, flows, known, strict=True):
            assert answers(run.wait(), flow) == expected
        del run, runs
    assert tight.core.catalog.budget.used_bytes == 0


def test_who_only_reads_a_text_does_not_use_its_state(tight: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[frozenset[str], dict[str, float]] = {}
    real = Conductor._foreseen

    def foreseen(self: Any, waiting: Any) -> dict[str, float]:
        found = real(self, waiting)
        names = {record.id: name for name, record in self.progress.states.items()}
        seen[frozenset(unit.name for unit in waiting)] = {names[state]: steps for state, steps in found.items()}
        return found

    monkeypatch.setattr(Conductor, "_foreseen", foreseen)
    flow = Workflow("read")
    document = flow.context("document", DOCUMENT)
    first = flow.agent("first", [document, "Begin."], max_new_tokens=2)
    second = flow.agent("second", "Go on.", continues=first, max_new_tokens=2)
    flow.agent("third", ["Which is better?", first, second], max_new_tokens=2)
    tight.run(flow).wait()
    assert seen[frozenset({"second", "third"})] == {"first": 1.0}
    assert seen[frozenset({"third"})] == {"first": NEVER, "second": NEVER}
    tight.clear()


def test_states_are_used_in_the_order_that_is_foreseen(tight: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = several("chain", 4, agents=3)
    _, most = alone(tight, flow)
    launched: list[str] = []
    real = Conductor._announce

    def announce(self: Any, unit: Any, *rest: Any) -> None:
        launched.append(unit.name)
        real(self, unit, *rest)

    monkeypatch.setattr(Conductor, "_announce", announce)
    with limited(tight, most):
        run = tight.run(flow).wait()
        assert launched == [unit.name for unit in units_of(run.graph, "state")]
        del run


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["workflow", "lru", "arc"])
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
