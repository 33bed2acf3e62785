"""Pictures are well-formed, say what the graph or run says, and ask for nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.display.drawing import layers, run_drawing
from kvlab.display.graph_picture import graph_html, graph_svg, run_svg
from kvlab.display.look import COLOURS, DASHES
from kvlab.store.events import Event, Kind
from kvlab.store.fold import World, fold

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def edges(svg: str) -> dict[str, ET.Element]:
    return {path.get("data-kv-edge", ""): path for path in parsed(svg).iter(f"{SVG}path") if path.get("data-kv-edge")}


def test_every_operator_has_its_shape_in_its_lane_and_layer(review: ModuleType) -> None:
    root = parsed(graph_svg(review.review_graph()))
    nodes = {group.get("data-kv-node"): group for group in root.iter(f"{SVG}g") if group.get("data-kv-node")}
    assert list(nodes) == ["context:paper", *review.AGENTS, "context:paper/fork", "planner/fork"]
    assert nodes["context:paper"].find(f"{SVG}circle") is not None
    x = {name: place(group)[0] for name, group in nodes.items() if name}
    assert (
        x["context:paper"] < x["context:paper/fork"] < x["planner"] < x["planner/fork"] < x["reviewer-1"] < x["editor"]
    )
    assert x["reviewer-1"] == x["reviewer-2"] == x["reviewer-3"]
    assert len({place(nodes[name])[1] for name in ("planner", "reviewer-1", "reviewer-2", "editor")}) == 4


def place(group: ET.Element) -> tuple[float, float]:
    circle = group.find(f"{SVG}circle")
    if circle is not None:
        return float(circle.get("cx", "")), float(circle.get("cy", ""))
    polygon = group.find(f"{SVG}polygon")
    assert polygon is not None
    points = [tuple(map(float, point.split(","))) for point in polygon.get("points", "").split()]
    return sum(x for x, _ in points) / len(points), (min(y for _, y in points) + max(y for _, y in points)) / 2


def test_data_edges_are_solid_and_state_edges_dashed_with_their_tokens(review: ModuleType) -> None:
    svg = graph_svg(review.review_graph())
    drawn = edges(svg)
    assert drawn["reviewer-1→editor"].get("class") == "data"
    assert drawn["reviewer-1→editor"].get("stroke-dasharray") is None
    assert drawn["planner/fork→reviewer-1"].get("stroke-dasharray")
    labels = [text.text for text in parsed(svg).iter(f"{SVG}text") if text.get("class") == "tok"]
    assert sorted(labels) == ["1\u202f024"] * 2 + ["1\u202f096"] * 3
    assert "reviewer-3 reads no text" in svg


def test_decisions_colour_dash_and_widen_their_edges(state: World) -> None:
    drawn = edges(run_svg(state))
    assert {name: path.get("data-kv-how") for name, path in drawn.items() if path.get("data-kv-how")} == {
        "context:paper/fork→planner": "in place",
        "planner/fork→reviewer-1": "in place",
        "planner/fork→reviewer-2": "transfer",
        "planner/fork→reviewer-3": "recompute",
        "context:paper/fork→editor": "in place",
    }
    moved, here = drawn["planner/fork→reviewer-2"], drawn["planner/fork→reviewer-1"]
    assert moved.get("stroke-dasharray") == DASHES["transfer"]
    assert moved.get("class") == "d-transfer"
    assert float(moved.get("stroke-width", "")) > float(here.get("stroke-width", ""))
    assert any("planned transfer, did recompute" in remark for remark in run_drawing(state).remarks)


def test_textflow_hands_on_text_alone(texts: list[World]) -> None:
    drawing = run_drawing(texts[0])
    assert {line.kind for line in drawing.lines} == {"data"}
    assert {(line.source, line.target) for line in drawing.lines} >= {
        ("planner", "reviewer-1"),
        ("reviewer-1", "editor"),
    }
    assert "context:paper" not in {mark.id for mark in drawing.marks}
    assert {mark.id: mark.caption for mark in drawing.marks}["planner"] == "+1\u202f048"


def test_without_a_graph_the_states_are_drawn(review: ModuleType) -> None:
    events = review.review_events("state")
    detail = {**events[0].detail, "graph": None}
    drawing = run_drawing(fold([replace(events[0], detail=detail), *events[1:]]))
    assert {mark.id for mark in drawing.marks} == {"s0", "s1", "s2", "s3", "s4", "s5", "s0/fork", "s1/fork"}
    assert [mark.id for mark in drawing.marks if mark.hollow] == ["s3"]


def test_names_are_escaped_and_nothing_is_fetched(review: ModuleType) -> None:
    evil = "<script>\"x\" & 'y'</script>"
    graph = review.review_graph()
    nodes = tuple(replace(node, lane=evil) for node in graph.nodes)
    html = graph_html(replace(graph, name=evil, nodes=nodes, warnings=(evil,)))
    assert "<script" not in html
    parsed(html)
    outside = re.findall(r"https?://[^\"' <]+", html)
    assert set(outside) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in html
    assert "@import" not in html


@pytest.mark.parametrize("world", [World.empty(), fold([Event(Kind.RUN_STARTED, 0, "c", 0, detail={"name": "x"})])])
def test_an_empty_run_is_an_empty_picture(world: World) -> None:
    parsed(run_svg(world))


def test_both_themes_have_every_colour(state: World) -> None:
    svg = run_svg(state)
    for name, pair in COLOURS.items():
        for side in pair:
            assert f"--kv-{name}:{side}" in svg
    assert 'body[data-jp-theme-light="false"]' in svg
    assert "prefers-color-scheme:dark" in svg
    used = set(re.findall(r"var\(--kv-([a-z-]+)\)", svg))
    assert used <= set(COLOURS)


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n), st.integers(0, n))))
    )
)
def test_layers_are_longest_paths(case: tuple[int, list[tuple[int, int]]]) -> None:
    """Oracle: relax all edges of an acyclic graph until nothing changes."""
    n, pairs = case
    acyclic = [(str(a), str(b)) for a, b in pairs if a < b < n]
    nodes = [str(index) for index in range(n)]
    expected = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for source, target in acyclic:
            expected[target] = max(expected[target], expected[source] + 1)
    assert layers(nodes, acyclic) == expected
    assert layers(reversed(nodes), acyclic) == expected


def test_a_cycle_does_not_hang() -> None:
    assert set(layers("abc", [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a"), ("a", "z")])) == {"a", "b", "c"}
