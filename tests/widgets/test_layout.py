"""Places of nodes: lanes stay lanes, edges go right, and what was placed is never moved."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import pairwise, permutations
from typing import Any

import pytest
from kvlab_widgets.layout import WORTH, Layout, ordered

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
    assert list(layout.lanes) == ["early", "between", "late"]


def length(order: list[str], edges: Counter[tuple[str, str]]) -> int:
    return sum(n * abs(order.index(one) - order.index(other)) for (one, other), n in edges.items())


@pytest.mark.parametrize("seed", range(12))
def test_lanes_are_ordered_only_for_clearly_shorter_edges(seed: int) -> None:
    chance = random.Random(seed)
    lanes = [f"lane-{i}" for i in range(6)]
    edges = Counter((chance.choice(lanes), chance.choice(lanes)) for _ in range(9))
    found = ordered(lanes, edges)
    assert sorted(found) == lanes
    best = min(length(list(order), edges) for order in permutations(lanes))
    assert best <= length(found, edges) <= length(lanes, edges)
    assert found == lanes or length(found, edges) < WORTH * length(lanes, edges)


def test_a_scrambled_pipeline_reads_downwards() -> None:
    path = ["a", "b", "c", "d"]
    assert ordered(["c", "a", "d", "b"], Counter(pairwise(path))) == path


def test_fan_out_and_fan_in_stay_as_their_author_wrote_them() -> None:
    lanes = ["planner", "reader-1", "reader-2", "reader-3", "editor"]
    edges = Counter((one, other) for reader in lanes[1:4] for one, other in (("planner", reader), (reader, "editor")))
    assert ordered(lanes, edges) == lanes


def document(added: Added) -> dict[str, Any]:
    known = {node for node, _, _ in added}
    edges = [{"source": source, "target": node} for node, _, sources in added for source in sources if source in known]
    return {"nodes": [{"id": node, "lane": lane} for node, lane, _ in added], "state_edges": edges, "data_edges": []}


def test_a_compiled_graph_of_ten_thousand_keeps_its_lanes_and_places_when_more_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout, added = Layout(), many(10_000)
    began = time.perf_counter()
    layout.place_graph(document(added))
    whole = time.perf_counter() - began
    assert len(set(layout.places.values())) == len(layout.places) == 10_000
    for node, _, sources in added:
        assert all(layout.places[source].x < layout.places[node].x for source in sources if source in layout.places)
    lanes, places = list(layout.lanes), dict(layout.places)
    began = time.perf_counter()
    layout.place("one more", "new-lane", ["n9999", "n3"])
    append = time.perf_counter() - began
    assert layout.places.pop("one more") == (places["n9999"].x + 1, len(lanes))
    assert layout.places == places
    assert list(layout.lanes) == [*lanes, "new-lane"]
    with capsys.disabled():
        print(f"\nlayout of 10,000 nodes {1e3 * whole:.0f} ms, one more {1e3 * append:.3f} ms")  # noqa: T201 - for people to read
