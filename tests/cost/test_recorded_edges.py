"""Decisions on edges that were really run: every road of each was taken, over real frames, and timed.

``recorded_edges.json`` comes from ``kvlab bench crossover`` (SmolLM2, fp32, two cores): for each context and link the cost
model that was calibrated there, and the median seconds of five rounds of each road.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from kvlab.cost.decide import Decision, decide
from kvlab.cost.model import CostModel
from kvlab.cost.world import Edge, Piece, View, WorkerView

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded_edges.json").read_text())
BYTES_PER_TOKEN = 46_080
NEW_TOKENS = 5


def decided(recorded: dict[str, Any]) -> Decision:
    path = (Piece("doc", recorded["n_tokens"], recorded["n_tokens"] * BYTES_PER_TOKEN),)
    workers = (
        WorkerView("worker-0", "one", frozenset({"doc"}), 0.0, 2),
        WorkerView("worker-1", "one", frozenset(), 0.0, 2),
    )
    view = View(workers, CostModel.from_dict(recorded["cost"]), mappable=False, candidates=frozenset({"worker-1"}))
    return decide(Edge("a→b", "a", "b", path, NEW_TOKENS, 1, 1), view)


def name(recorded: dict[str, Any]) -> str:
    return f"{recorded['n_tokens']} tokens over {recorded['link'] or 'unpaced'}"


@pytest.mark.parametrize("recorded", RECORDED, ids=name)
def test_the_chosen_road_was_the_fastest_or_nearly(recorded: dict[str, Any]) -> None:
    chosen = decided(recorded).chosen.how
    assert recorded["seconds"][chosen] <= 1.1 * min(recorded["seconds"].values())


def test_predictions_were_about_right() -> None:
    errors = [
        abs(road.seconds / recorded["seconds"][road.how] - 1)
        for recorded in RECORDED
        for road in decided(recorded).alternatives
    ]
    assert len(errors) == 3 * len(RECORDED)
    assert statistics.fmean(errors) <= 0.25


def test_the_worlds_differ_in_what_is_best() -> None:
    best = {min(recorded["seconds"], key=recorded["seconds"].get) for recorded in RECORDED}
    assert {"transfer", "hybrid"} <= best
