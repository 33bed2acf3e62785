"""What each policy takes in one world where all roads are open."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.cost.decide import decide
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.policies import Forced, Oracle, Threshold, forced, policy_named
from kvlab.cost.world import Edge, Piece, View, WorkerView
from kvlab.errors import InvalidInput

COST = CostModel(PrefillCurve(0.0, 1e-3, 0.0, 1), DecodeCurve(0.01), Link(0.0, 1e6), 0.0, 0.0)
EDGE = Edge("a→b", "a", "b", (Piece("doc", 200, 200_000),), 5)
WORLD = View(
    (WorkerView("w0", "one", frozenset({"doc"}), 0.5), WorkerView("w1", "two", frozenset())),
    COST,
)


def taken(policy: str) -> tuple[str, str]:
    chosen = decide(EDGE, WORLD, policy_named(policy)).chosen
    return chosen.how, chosen.worker


def test_each_named_policy() -> None:
    assert taken("cheapest") == ("hybrid", "w1")
    assert taken("always-transfer") == ("transfer", "w1")
    assert taken("always-recompute") == ("recompute", "w1")
    assert taken("threshold(200)") == ("transfer", "w1")
    assert taken("threshold(201)") == ("recompute", "w1")


def test_a_threshold_leaves_alone_what_lies_there() -> None:
    here = View(WORLD.workers, COST, candidates=frozenset({"w0"}))
    for n_tokens in (1, 10_000):
        assert decide(EDGE, here, Threshold(n_tokens)).chosen.how == "in place"


def test_always_recompute_computes_also_where_the_state_lies() -> None:
    here = View(WORLD.workers, COST, candidates=frozenset({"w0"}))
    chosen = decide(EDGE, here, policy_named("always-recompute")).chosen
    assert (chosen.how, chosen.worker, chosen.again) == ("recompute", "w0", ("doc",))


def test_a_forced_choice_is_taken_and_named() -> None:
    decision = decide(EDGE, WORLD, Forced("recompute", "w0"))
    assert (decision.chosen.how, decision.chosen.worker, decision.policy) == ("recompute", "w0", "forced")
    assert decision.reason.startswith("forced: 200 tokens are prefilled again on w0")
    assert forced("transfer") == Forced("transfer")
    assert forced(("transfer", "w1")) == Forced("transfer", "w1")
    assert decide(EDGE, WORLD, Forced(worker="w0")).chosen.how == "in place"


def test_a_road_that_is_not_there_is_not_taken_silently() -> None:
    gone = View((WorkerView("w1", "two", frozenset()),), COST)
    decision = decide(EDGE, gone, Forced("transfer"))
    assert decision.chosen.how == "recompute"
    assert decision.reason.startswith("forced has no road here. ")


def test_the_oracle_takes_what_was_measured_fastest() -> None:
    measured = {"a→b": {("transfer", "w1"): 0.4, ("recompute", "w1"): 0.1, ("hybrid", "w1"): 0.2}}
    assert decide(EDGE, WORLD, Oracle(measured)).chosen.how == "recompute"
    assert decide(EDGE, WORLD, Oracle({})).chosen.how == "hybrid"


def test_a_fresh_start_is_no_matter_of_policy() -> None:
    fresh = Edge("→b", "", "b", (), 100)
    assert decide(fresh, WORLD, policy_named("always-transfer")).chosen.worker == "w1"


@pytest.mark.parametrize("told", [None, 3, object(), ["transfer"], ("transfer", "w1", "more")])
def test_what_is_no_policy_and_no_road_is_refused_by_type(told: Any) -> None:
    with pytest.raises(InvalidInput):
        policy_named(told)
    with pytest.raises(InvalidInput):
        forced(told)


@pytest.mark.parametrize("told", ["oracle", "threshold", "threshold(x)", "always", ""])
def test_unknown_policies_are_refused(told: str) -> None:
    with pytest.raises(InvalidInput):
        policy_named(told)
    with pytest.raises(InvalidInput, match="in place, map, transfer, restore, hybrid, recompute"):
        forced(told)
