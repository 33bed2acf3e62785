"""Places of nodes: lanes stay lanes, edges go right, and what was placed is never moved."""

from __future__ import annotations

import random
import time

from kvlab_widgets.layout import Layout

Added = list[tuple[str, str, list[str]]]


def many(n: int, lanes: int = 12) -> Added:
    chance = random.Random(1)
    return [
        (f"n{i}", f"lane-{i % lanes}", [f"n{i - chance.randrange(1, 40)}" for _ in range(chance.randrange(3))])
        for i in range(n)
    ]


def test_ten_thousand_nodes_have_places_of_their_own_behind_their_sources() -> None:
    layout, added = Layout(), many(10_000)
    began = time.process_time()
    for node, lane, sources in added:
        layout.place(node, lane, sources)
    assert time.process_time() - began < 2  # a layout in quadratic time takes minutes
    assert len(set(layout.places.values())) == 10_000
    for node, lane, sources in added:
        assert layout.places[node].lane == layout.lanes[lane]
        assert all(layout.places[source].x < layout.places[node].x for source in sources if source in layout.places)


def test_adding_moves_nothing() -> None:
    layout, added = Layout(), many(600)
    for node, lane, sources in added[:300]:
        layout.place(node, lane, sources)
    before = dict(layout.places)
    for node, lane, sources in added:
        layout.place(node, lane, sources)
    assert {node: layout.places[node] for node in before} == before


def test_an_unknown_source_is_no_hindrance_and_lanes_keep_their_order() -> None:
    layout = Layout()
    assert layout.place("b", "second", ["nobody"]) == (0, 0)
    assert layout.place("a", "first", ["b"]) == (1, 1)
    assert list(layout.lanes) == ["second", "first"]


def test_a_compiled_graph_is_placed_sources_first() -> None:
    layout = Layout()
    nodes = [{"id": name, "lane": name} for name in ("late", "early", "between")]
    edges = [{"source": "early", "target": "between"}, {"source": "between", "target": "late"}]
    layout.place_graph({"nodes": nodes, "state_edges": edges, "data_edges": []})
    assert [layout.places[name].x for name in ("early", "between", "late")] == [0, 1, 2]
    assert list(layout.lanes) == ["late", "early", "between"]
