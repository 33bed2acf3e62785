"""Siblings in small worlds: when one batch is best, and when groups are."""

from __future__ import annotations

import pytest

from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.siblings import Sibling, decide_siblings
from kvlab.cost.world import Edge, Piece, View, WorkerView

PATH = (Piece("doc", 1000, 1_000_000),)
EDGE = Edge("doc→reviewers", "doc", "reviewers", PATH, 0)
FOUR = [Sibling(10, 101)] * 4


def world(branch: float, rate: float, *, same_host: bool = False) -> View:
    """100 decode steps of 10 ms, ``branch`` seconds more for each further branch; prefill 1 ms a token."""
    cost = CostModel(PrefillCurve(0.0, 1e-3, 0.0, 1), DecodeCurve(0.01, branch), Link(0.0, rate), 0.0, 0.0)
    second = "one" if same_host else "two"
    return View(
        (WorkerView("a", "one", frozenset({"doc"})), WorkerView("b", second, frozenset())), cost, mappable=False
    )


def grouped(view: View) -> list[tuple[tuple[int, ...], str, str]]:
    groups = decide_siblings(EDGE, FOUR, view)
    return [(g.members, g.decision.chosen.how, g.decision.chosen.worker) for g in groups]


def test_branches_that_cost_little_stay_one_batch() -> None:
    """One batch: 40 new tokens and 100 steps of 13 ms: 1.34 s. Two groups: 20 and 100 steps of 11 ms, but 1 s of moving."""
    assert grouped(world(branch=0.001, rate=1e6)) == [((0, 1, 2, 3), "in place", "a")]


def test_branches_that_cost_as_much_as_a_step_are_spread_when_the_parent_moves_fast() -> None:
    assert grouped(world(branch=0.01, rate=1e9)) == [((0, 1), "in place", "a"), ((2, 3), "transfer", "b")]


def test_the_other_group_computes_the_parent_again_where_the_link_is_slow() -> None:
    assert grouped(world(branch=0.02, rate=1e3)) == [((0, 1), "in place", "a"), ((2, 3), "recompute", "b")]


def test_groups_on_one_host_share_its_cores() -> None:
    """One batch: 0.04 + 100·(10 + 3·5) ms = 2.54 s. Two groups with half the cores each: 0.04 + 100·2·(10 + 5) = 3.04 s.

    On two hosts a group takes 0.02 + 100·(10 + 5) ms = 1.52 s.
    """
    cost = CostModel(PrefillCurve(0.0, 1e-3, 0.0, 2), DecodeCurve(0.01, 0.005, 0.0, 2), Link(0.0, 1e12), 0.0, 0.0)
    first = WorkerView("a", "one", frozenset({"doc"}), 0.0, 2)
    done = {}
    for host in ("one", "two"):
        view = View((first, WorkerView("b", host, frozenset(), 0.0, 2)), cost, mappable=False)
        done[host] = [group.done_seconds for group in decide_siblings(EDGE, FOUR, view)]
    assert done["one"] == pytest.approx([2.54])
    assert done["two"] == pytest.approx([1.52, 1.52])


def test_a_single_sibling_is_one_decision() -> None:
    (only,) = decide_siblings(EDGE, FOUR[:1], world(0.01, 1e9))
    assert only.members == (0,)
    assert only.decision.edge.n_branches == 1
