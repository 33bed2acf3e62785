"""The one thing that a browser computes, seconds of roads in worlds that nobody was in, is what ``decide`` says of them."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvlab.cost.decide import decide
from kvlab.cost.model import DISK, CostModel, DecodeCurve, Link, PrefillCurve, link_name
from kvlab.cost.seen import seen
from kvlab.cost.world import Edge, Piece, View, WorkerView

pytestmark = pytest.mark.browser

PER_TOKEN = 46_080
EXACT = 1e-9
RATE = 30e6
KNOBS: tuple[dict[str, Any], ...] = (
    {},
    {"bandwidth": 8.0},
    {"bandwidth": 0.125, "latency": 0.25},
    {"latency": -0.1},
    {"prefill": 4.0},
    {"queue": 0.75, "on": "w0"},
    {"bandwidth": 2.5, "latency": 0.01, "prefill": 0.3, "queue": 0.0, "on": "w1"},
)


@pytest.fixture(scope="module")
def run(browser: Any) -> Iterator[Any]:
    """``run(expression, argument)`` with the views' own functions in scope, in the browser."""
    import kvlab_widgets

    folder = Path(kvlab_widgets.__file__).parent
    files = ("client/format.mjs", "client/panel.mjs", "client/roads.mjs", "views/decision.mjs")
    code = "\n".join((folder / name).read_text(encoding="utf-8") for name in files)
    page = browser.new_page()
    yield lambda expression, argument: page.evaluate(
        f"argument => {{ {code}\n return ({expression})(argument) }}", argument
    )
    page.close()


def worlds(n: int = 150) -> Iterator[tuple[Edge, View]]:
    """Worlds of every kind: one to four segments anywhere on one to three workers or on disk, any link and queue, or mapped."""
    chance = random.Random(7)
    for _ in range(n):
        sizes = [chance.choice((1, 17, 64, 500, 3000)) for _ in range(chance.randint(1, 4))]
        path = tuple(Piece(f"p{i}", size, size * chance.choice((PER_TOKEN, 4608))) for i, size in enumerate(sizes))
        names = ["w0", "w1", "w2"][: chance.randint(1, 3)]
        workers = tuple(
            WorkerView(
                name, chance.choice(("here", "there")),
                frozenset(piece.recipe for piece in path if chance.random() < 0.6),
                chance.choice((0.0, 0.02, 1.5)), chance.choice((1, 2)),
            )
            for name in names
        )  # fmt: skip
        pairs = [link_name(a, b) for a in names for b in names if a != b]
        pairs += [link_name(DISK, name) for name in names]
        links = {
            pair: Link(chance.choice((0.0, 0.004, 0.2)), chance.choice((1e6, 3e7, 1e10)))
            for pair in pairs
            if chance.random() < 0.5
        }
        prefill = PrefillCurve(chance.choice((0.0, 0.02)), chance.choice((1e-4, 1.1e-3)), chance.choice((0.0, 4e-7)), 2)
        cost = CostModel(
            prefill, DecodeCurve(0.03), Link(0.005, 15e6), 0.002, chance.choice((0.001, 0.004)), links,
            chance.choice((math.inf, 2e9)), chance.choice((0.0, 1e-10)), disk=Link(0.003, chance.choice((2e7, 1e9))),
        )  # fmt: skip
        disk = frozenset(piece.recipe for piece in path if chance.random() < 0.4)
        queues = {pair: chance.choice((0.0, 0.3)) for pair in pairs if chance.random() < 0.3}
        only = None if chance.random() < 0.6 else frozenset({names[0]})
        yield (
            Edge("x→y", "x", "y", path, chance.choice((1, 80))),
            View(workers, cost, chance.random() < 0.3, only, queues, disk),
        )


def turned(
    view: View,
    *,
    bandwidth: float = 1.0,
    latency: float = 0.0,
    prefill: float = 1.0,
    queue: float | None = None,
    on: str | None = None,
) -> View:
    """The world with other numbers, by the model's own means."""
    cost = view.cost

    def link(one: Link) -> Link:
        return Link(max(0.0, one.t0 + latency), one.bytes_per_second * bandwidth)

    curve = cost.prefill
    return replace(
        view,
        cost=replace(
            cost,
            frames=link(cost.frames),
            links={name: one if name.startswith(DISK) else link(one) for name, one in cost.links.items()},
            prefill=replace(curve, a=curve.a / prefill, b=curve.b / prefill, c=curve.c / prefill),
        ),
        workers=tuple(
            replace(worker, queue_seconds=queue) if worker.name == on and queue is not None else worker
            for worker in view.workers
        ),
    )


def told(edge: Edge, view: View) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        (a.how, a.worker): (a.seconds, a.nbytes, a.missing_tokens, dict(a.terms))
        for a in decide(edge, view).alternatives
    }


@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: "+".join(knobs) or "as recorded")
def test_what_if_says_what_decide_says(knobs: dict[str, Any], run: Any) -> None:
    grid = list(worlds())
    sent = [json.loads(json.dumps(seen(decide(edge, view)))) for edge, view in grid]
    found = run("([worlds, knobs]) => worlds.map(one => decide(changed(worldOf(one), knobs)))", [sent, knobs])
    chosen: set[str] = set()
    for (edge, view), roads in zip(grid, found, strict=True):
        other = turned(view, **knobs)
        wanted, first = told(edge, other), decide(edge, other).chosen
        assert {(road["how"], road["worker"]) for road in roads} == set(wanted)
        for road in roads:
            seconds, nbytes, missing, terms = wanted[road["how"], road["worker"]]
            assert road["took"] == pytest.approx(seconds, rel=EXACT)
            assert (road["nbytes"], road["missing"]) == (nbytes, missing)
            assert road["terms"] == {name: pytest.approx(value, rel=EXACT) for name, value in terms.items()}
        assert (roads[0]["how"], roads[0]["worker"]) == (first.how, first.worker)
        chosen.add(first.how)
    assert {"in place", "map", "transfer", "restore", "recompute"} <= chosen


def edge_of(n_tokens: int, busy: float = 0.3) -> tuple[Edge, View]:
    cost = CostModel(PrefillCurve(0.02, 0.0011, 4e-7, 2), DecodeCurve(0.03), Link(0.005, RATE), 0.002, 0.004)
    path = (Piece("a", n_tokens, n_tokens * PER_TOKEN),)
    workers = (WorkerView("w0", "here", frozenset({"a"}), busy, 2), WorkerView("w1", "there", frozenset(), threads=2))
    return Edge("x→y", "x", "y", path, 20), View(workers, cost, mappable=False)


def curves(run: Any, n_tokens: int, axis: str) -> dict[str, Any]:
    sent = seen(decide(*edge_of(n_tokens)))
    return dict(run("([seen, axis]) => breakEven(worldOf(seen), 'w1', axis)", [sent, axis]))


@pytest.mark.parametrize("n_tokens", [128, 900, 4000])
def test_curves_over_tokens_are_those_of_decide(n_tokens: int, run: Any) -> None:
    found = curves(run, n_tokens, "tokens")
    assert {(line["how"], line["worker"]) for line in found["lines"]} == {
        ("transfer", "w1"), ("hybrid", "w1"), ("recompute", "w1"), ("in place", "w0"),
    }  # fmt: skip
    at = {n: told(*edge_of(n)) for n in found["x"]}
    for line in found["lines"]:
        for n, seconds in zip(found["x"], line["y"], strict=True):
            wanted = at[n].get((line["how"], line["worker"]))
            assert seconds == pytest.approx(wanted[0], rel=EXACT) if wanted else math.isnan(seconds)
        assert line["here"] == pytest.approx(told(*edge_of(n_tokens))[line["how"], line["worker"]][0], rel=EXACT)
    assert found["here"] == n_tokens


@pytest.mark.parametrize("n_tokens", [128, 900, 4000])
def test_curves_over_bandwidth_are_those_of_decide(n_tokens: int, run: Any) -> None:
    found = curves(run, n_tokens, "bandwidth")
    edge, view = edge_of(n_tokens)
    for i, x in enumerate(found["x"]):
        wanted = told(edge, turned(view, bandwidth=10**x / view.cost.frames.bytes_per_second))
        for line in found["lines"]:
            assert line["y"][i] == pytest.approx(wanted[line["how"], line["worker"]][0], rel=EXACT)
    assert found["here"] == pytest.approx(math.log10(RATE), rel=EXACT)


@pytest.mark.parametrize("n_tokens", [128, 900, 4000])
@pytest.mark.parametrize("axis", ["tokens", "bandwidth"])
def test_on_either_side_of_the_break_even_another_road_wins(n_tokens: int, axis: str, run: Any) -> None:
    even = curves(run, n_tokens, axis)["even"]
    edge, view = edge_of(n_tokens)

    def moving_wins(x: float) -> bool:
        if axis == "tokens":
            roads = told(*edge_of(round(x)))
        else:
            roads = told(edge, turned(view, bandwidth=10**x / view.cost.frames.bytes_per_second))
        return roads["transfer", "w1"][0] < roads["recompute", "w1"][0]

    assert even is not None
    step = 1 if axis == "tokens" else 1e-3
    assert moving_wins(even["x"] - 2 * step) != moving_wins(even["x"] + 2 * step)


def test_labels_of_curves_that_meet_do_not_collide(run: Any) -> None:
    ends = [[1.0, "a"], [1.0, "b"], [1.01, "c"], [9.9, "d"], [10.0, "e"], [0.0, "f"]]
    placed = run("texts => apart(texts, 1, 10)", ends)
    heights = [height for height, _ in placed]
    assert all(after - before >= 1 - EXACT for before, after in itertools.pairwise(heights))
    assert min(heights) >= 0
    assert max(heights) <= 10
    assert sorted(text for _, text in placed) == list("abcdef")
