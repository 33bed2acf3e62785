"""What a decision saw is told in plain values, as much as deciding once more needs and no more."""

from __future__ import annotations

import json
import math

import pytest

from kvlab.cost.decide import Decision, decide
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.roads import roads_for
from kvlab.cost.seen import seen, world_of
from kvlab.cost.world import Edge, Piece, View, WorkerView


def decided(copy_rate: float = math.inf, candidates: frozenset[str] | None = None) -> Decision:
    path = (Piece("a", 100, 400), Piece("b", 10, 40))
    workers = (
        WorkerView("w0", "here", frozenset({"a", "b"}), 0.5, 2),
        WorkerView("w1", "there", frozenset({"a"}), threads=1),
        WorkerView("w2", "there", frozenset(), threads=1),
    )
    links = {"w0→w1": Link(0.1, 1e6)}
    cost = CostModel(
        PrefillCurve(0.02, 0.001, 0.0, 2), DecodeCurve(0.03), Link(0.005, 2e6), 0.002, 0.004, links, copy_rate
    )
    return decide(Edge("x→y", "x", "y", path, 7), View(workers, cost, False, candidates, {"w0→w2": 0.25}))


def test_it_is_json_and_a_rate_without_limit_is_none() -> None:
    told = seen(decided())
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["cost"]["copy_bytes_per_second"] is None
    assert seen(decided(2e9))["cost"]["copy_bytes_per_second"] == 2e9


def test_segments_workers_and_queues_are_those_of_the_world() -> None:
    told = seen(decided())
    assert told["pieces"] == [[100, 400], [10, 40]]
    assert told["workers"] == [
        ["w0", "here", [0, 1], 0.5, 2],
        ["w1", "there", [0], 0.0, 1],
        ["w2", "there", [], 0.0, 1],
    ]
    assert (told["new_tokens"], told["mappable"], told["candidates"]) == (7, False, ["w0", "w1", "w2"])


@pytest.mark.parametrize(
    ("candidates", "links"),
    [
        (None, {"w0→w1", "w0→w2", "w1→w0", "w1→w2"}),
        (frozenset({"w2"}), {"w0→w2", "w1→w2"}),
    ],
)
def test_links_are_told_from_holders_to_candidates(candidates: frozenset[str] | None, links: set[str]) -> None:
    told = seen(decided(candidates=candidates))["links"]
    assert set(told) == links
    assert told["w0→w2"] == [0.005, 2e6, 0.25]
    assert told.get("w0→w1", [0.1, 1e6, 0.0]) == [0.1, 1e6, 0.0]


@pytest.mark.parametrize("candidates", [None, frozenset({"w2"})])
@pytest.mark.parametrize("copy_rate", [math.inf, 2e9])
def test_the_same_roads_lead_through_a_world_that_was_told(copy_rate: float, candidates: frozenset[str] | None) -> None:
    decision = decided(copy_rate, candidates)
    again = roads_for(*world_of(json.loads(json.dumps(seen(decision)))))
    wanted = [
        (one.how, one.worker, one.terms, one.nbytes, one.missing_tokens, one.excluded) for one in decision.alternatives
    ]
    assert [(one.how, one.worker, one.terms, one.nbytes, one.missing_tokens, one.excluded) for one in again] == wanted
