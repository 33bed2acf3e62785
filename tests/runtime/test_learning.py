"""What a lab learns from its edges: eight that were decided at once teach once, and not eight times."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kvlab.cost.corrections import WEIGHT
from kvlab.cost.decide import Decision, decide
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.policies import Forced
from kvlab.cost.roads import How
from kvlab.cost.world import Edge, Piece, View, WorkerView
from kvlab.runtime.planning import Planner

COST = CostModel(PrefillCurve(0.01, 1e-3, 1e-6, 1), DecodeCurve(0.01), Link(0.01, 1e7), 0.002, 0.004)
SLOWER = 1.5


def decided(planner: Planner, how: How) -> Decision:
    """An edge of 512 tokens from worker a to worker b, by ``how``."""
    path = (Piece("r", 512, 512 * 1000),)
    workers = (WorkerView("a", "a", frozenset({"r"})), WorkerView("b", "b", frozenset()))
    return decide(Edge("x→y", "x", "y", path, 8), View(workers, planner.cost), Forced(how, "b"))


def as_it_went(decision: Decision) -> dict[str, Any]:
    """Every term took half as long again as calibrated; the decision may have been made with factors."""
    calibrated = replace(decision.view, cost=COST)
    terms = decide(decision.edge, calibrated, Forced(decision.chosen.how, "b")).chosen.terms
    return {"how": decision.chosen.how, "worker": "b", "terms": {name: SLOWER * one for name, one in terms.items()}}


@pytest.mark.parametrize("how", ["transfer", "recompute"])
def test_what_was_decided_at_once_is_learned_once(how: How) -> None:
    planner = Planner(SimpleNamespace(cost=COST, lock=threading.Lock()))  # type: ignore[arg-type]  learning asks for no more
    for number in range(1, 4):
        at_once = [decided(planner, how) for _ in range(8)]
        for decision in at_once:
            planner.learn(decision, as_it_went(decision))
        factor = planner.cost.prefill.b / COST.prefill.b
        if how == "transfer":
            factor = COST.frames.bytes_per_second / planner.cost.link("a", "b").bytes_per_second
        # Each of them goes a part of the way from what is believed to what is so; none goes beyond.
        assert factor == pytest.approx(SLOWER - (SLOWER - 1) * (1 - WEIGHT) ** (8 * number), rel=1e-6)
