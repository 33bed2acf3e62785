"""Pictures over time show what the tables say."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from kvlab.display.drawing import run_drawing
from kvlab.display.memory_picture import memory_svg, occupancy
from kvlab.display.timeline_picture import Span, spans, timeline_svg
from kvlab.store.fold import World, fold


def test_spans_are_the_finished_operators(state: World) -> None:
    found = {span.agent: span for span in spans(state)}
    assert set(found) == {"context:paper", "planner", "reviewer-1", "reviewer-2", "reviewer-3", "editor"}
    assert found["reviewer-3"].how == "recompute"
    assert found["context:paper"].how is None
    began = state.run["started_ns"]
    for row in state.rows["operators"]:
        span = found[row["agent"]]
        assert (span.start, span.end) == pytest.approx(
            ((row["started_ns"] - began) / 1e9, (row["finished_ns"] - began) / 1e9)
        )


def test_runs_share_one_axis(state: World, texts: list[World]) -> None:
    root = ET.fromstring(timeline_svg([("stateflow", state), ("textflow", texts[0])]))
    bars = [group.find("rect") for group in root.iter("g")]
    assert len(bars) == 6 + 5
    widths = [float(bar.get("width", "")) for bar in bars if bar is not None]
    seconds = [span.end - span.start for world in (state, texts[0]) for span in by_worker(world)]
    assert [width / second for width, second in zip(widths, seconds, strict=True)] == pytest.approx(
        [widths[0] / seconds[0]] * 11, rel=0.02
    )


def by_worker(world: World) -> list[Span]:
    return sorted(spans(world), key=lambda span: (span.worker, span.start))


def test_occupancy_is_the_sum_over_workers_and_peaks_at_the_peak(state: World, texts: list[World]) -> None:
    for world in (state, texts[0]):
        assert max(nbytes for _, nbytes in occupancy(world)) == world.peak_sampled_bytes
        assert occupancy(world)[-1][1] == sum(world.sampled.values())
    ET.fromstring(memory_svg([("stateflow", state), ("<b>", texts[0])]))


def test_nothing_known_is_no_picture() -> None:
    assert timeline_svg([("x", World.empty())]) == memory_svg([("x", World.empty())]) == ""


def test_in_textflow_text_goes_around_prefixes_that_did_not_run(review: ModuleType) -> None:
    events = review.review_events("text")
    document = events[0].detail["graph"]
    prefix = {**document["nodes"][0], "id": "prefix:1", "lane": "prefix:1", "parent": "planner"}
    edges = [
        {**edge, "source": "prefix:1"} if edge["source"] == "planner" else edge for edge in document["state_edges"]
    ]
    edges.append({"source": "planner", "target": "prefix:1", "n_tokens": 1, "recompute_because": None})
    graph = {**document, "nodes": [*document["nodes"], prefix], "state_edges": edges}
    world = fold([replace(events[0], detail={**events[0].detail, "graph": graph}), *events[1:]])
    drawn = {(line.source, line.target) for line in run_drawing(world).lines}
    assert {("planner", f"reviewer-{n}") for n in (1, 2, 3)} < drawn
