"""Rows for a browser say at every moment what the store's own fold says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kvlab_widgets.packing import as_json, packed, unpacked
from kvlab_widgets.rows import DECISIONS, SHAPES, TABLES, RunRows
from kvlab_widgets.views.graph import MARKERS

from kvlab.store.events import Event, Kind
from kvlab.store.fold import World


def rows_of(events: list[Any]) -> dict[str, Any]:
    rows = RunRows()
    rows.feed(events)
    return rows.take()


def upto(table: dict[str, list[Any]], k: int) -> list[dict[str, Any]]:
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True) if values[0] <= k]


@pytest.mark.parametrize("which", ["small", "generated", "text"])
def test_every_moment_is_the_stores(which: str, review: Any, generate: Any) -> None:
    events = {
        "small": lambda: review.review_events("state"),
        "generated": lambda: generate.make_events(150, alive=20),
        "text": lambda: review.review_events("text"),
    }[which]()
    batch = rows_of(events)
    tables, workers = batch["tables"], batch["workers"]
    empty: dict[str, list[Any]] = {"born": []}
    world = World.empty()
    for k, event in enumerate(events, 1):
        world.apply(event)
        nodes = upto(tables.get("nodes", empty), k)
        if which == "text":
            assert [node["id"] for node in nodes] == [row["agent"] for row in world.rows["turns"]]
        else:
            made = [row for row in world.rows["states"] if row["operator"]]
            assert [(n["id"], n["tokens"], n["bytes"]) for n in nodes] == [
                (row["state"], row["n_tokens"], row["nbytes"]) for row in made
            ]
            shown = {mark["node"]: mark["fill"] for mark in upto(tables.get("marks", empty), k)}
            assert {nodes[node]["id"] for node, fill in shown.items() if fill == 1} == {
                row["state"] for row in made if row["phase"] == "evicted"
            }
        decided = upto(tables.get("decisions", empty), k)
        assert [(d["edge"], DECISIONS[d["chosen"]], d["predicted"]) for d in decided] == [
            (row["edge"], row["chosen"], row["predicted_seconds"]) for row in world.rows["edges"]
        ]
        done = [row for row in world.rows["edges"] if row["actual_seq"]]
        actual = {decided[a["decision"]]["edge"]: a for a in upto(tables.get("actuals", empty), k)}
        assert {edge: (DECISIONS[a["how"]], a["seconds"]) for edge, a in actual.items()} == {
            row["edge"]: (row["actual_how"], row["actual_seconds"]) for row in done
        }
        held = {workers[row["worker"]]: row for row in upto(tables.get("memory", empty), k)}
        for row in world.rows["workers"]:
            told = held.get(row["worker"])
            assert (told["computed"] + told["received"] + told["mapped"] if told else 0) == row["kv_bytes"]


def test_tables_are_sorted_and_whole(generate: Any) -> None:
    tables = rows_of(generate.make_events(300, alive=40))["tables"]
    for name, table in tables.items():
        assert tuple(table) == TABLES[name]
        assert len({len(column) for column in table.values()}) == 1
        if "born" in table:
            assert table["born"] == sorted(table["born"])


def test_rows_stand_where_the_plan_put_them_and_new_lanes_come_last(review: Any) -> None:
    events = review.review_events("state")
    whole = rows_of(events)
    nodes, plan = whole["tables"]["nodes"], whole["tables"]["plan"]
    agents = [node["lane"] for node in events[0].detail["graph"]["nodes"]]
    assert sorted(whole["lanes"][: len(set(agents))]) == sorted(set(agents))
    cells = list(zip(plan["x"], plan["y"], strict=True))
    assert len(set(cells)) == len(cells) == len(agents)
    assert set(zip(nodes["x"], nodes["y"], strict=True)) <= set(cells)
    last, rows = RunRows(), RunRows()
    last.feed(events)
    for k in (1, len(events) // 2, len(events)):
        rows.feed(events[rows.n_events : k])
        assert rows.layout.places.items() <= last.layout.places.items()


def test_pieces_are_the_whole(generate: Any) -> None:
    events = generate.make_events(120, alive=30)
    whole, rows = rows_of(events), RunRows()
    joined: dict[str, dict[str, list[Any]]] = {}
    names: dict[str, list[str]] = {"lanes": [], "workers": [], "agents": [], "segments": []}
    last = 0
    for start in range(0, len(events), 37):
        rows.feed(events[start : start + 37])
        batch = rows.take()
        assert batch["from"] == last
        last = batch["to"]
        for name, table in batch["tables"].items():
            for column, values in table.items():
                joined.setdefault(name, {}).setdefault(column, []).extend(values)
        for name, known in names.items():
            known.extend(batch.get(name, []))
    assert joined == whole["tables"]
    assert names == {name: whole[name] for name in names}


def test_a_batch_is_json_and_packing_loses_nothing(review: Any) -> None:
    batch = rows_of(review.review_events("state"))
    assert unpacked(packed(batch)) == json.loads(as_json(batch))
    assert as_json({"x": 1 / 3, "n": 12345678}) == '{"x":0.333333,"n":12345678}'


def test_a_thousand_events_are_few_bytes(generate: Any) -> None:
    events = generate.make_events(1500)
    rows = RunRows()
    rows.feed(events)
    assert len(packed(rows.take())) / len(events) < 120  # so 10,000 events are little beside Bokeh itself


def test_states_that_nobody_named_lie_in_the_lane_of_what_they_were_made_from() -> None:
    made = [("s1", "", "materialize", []), ("s2", "/0", "fork", ["s1"]), ("s3", "/1", "fork", ["s1"]),
            ("s4", "/0", "resume", ["s2"]), ("s5", "", "resume", ["s1"]), ("s6", "doc", "materialize", []),
            ("s7", "doc/0", "fork", ["s6"]), ("s8", "/0/0", "fork", ["s4"])]  # fmt: skip
    events = [
        Event(Kind.STATE_CREATED, n, "lab", n, agent=name, state=state, n_tokens=1, nbytes=1,
              detail={"name": name, "operator": operator, "parents": parents, "segments": [], "exact": True})
        for n, (state, name, operator, parents) in enumerate(made)
    ]  # fmt: skip
    batch = rows_of(events)
    nodes = batch["tables"]["nodes"]
    lanes = dict(zip(nodes["id"], (batch["lanes"][-y] for y in nodes["y"]), strict=True))
    assert lanes == {"s1": "s1", "s2": "s1/0", "s3": "s1/1", "s4": "s1/0", "s5": "s1", "s6": "doc", "s7": "doc/0",
                     "s8": "s1/0/0"}  # fmt: skip
    places = list(zip(nodes["x"], nodes["y"], strict=True))
    assert len(set(places)) == len(places)


def test_a_tool_has_a_row_of_its_own_and_a_skipped_turn_stays_planned() -> None:
    kinds = {"plan": "resume", "look-up": "tool", "step": "resume"}
    nodes = [
        {"id": name, "lane": name, "kind": kind, "parent": None, "known_tokens": 0, "max_new_tokens": 0}
        for name, kind in kinds.items()
    ]
    graph = {"nodes": nodes, "state_edges": [{"source": "plan", "target": "step"}],
             "data_edges": [{"source": "plan", "target": "look-up"}, {"source": "look-up", "target": "step"}]}  # fmt: skip
    told: dict[str, Any] = {"action": "x", "agent": "look-up", "worker": "tools"}
    events = [
        Event(Kind.RUN_STARTED, 0, "lab", 0, detail={"name": "plan", "flow": "state", "graph": graph}),
        Event(Kind.ACTION_STARTED, 10**9, "lab", 1, **told, detail={"op": "tool", "holds": []}),
        Event(Kind.ACTION_FINISHED, 3 * 10**9, "lab", 2, **told, n_tokens=4, seconds=2.0, detail={"op": "tool", "text": "ok"}),
        Event(Kind.ACTION_SKIPPED, 3 * 10**9, "lab", 3, action="y", agent="step", state="s1",
              detail={"op": "resume", "because": "look-up said 'ok'", "instead": "plan"}),
    ]  # fmt: skip
    batch = rows_of(events)
    tables = batch["tables"]
    assert SHAPES[tables["nodes"]["shape"][0]] == "tool"
    assert (tables["nodes"]["id"], tables["nodes"]["preview"]) == (["look-up"], ["ok"])
    assert batch["workers"] == ["tools"]
    assert (tables["spans"]["t0"], tables["spans"]["t1"], tables["spans"]["op"]) == ([1.0], [3.0], ["tool"])
    assert [(row["x0"], row["x1"]) for row in upto(tables["data"], 2)] == [(0, 1)]
    assert tables["events"]["text"][-1] == "step is skipped: look-up said 'ok'; plan's answer stands"
    assert len(MARKERS) == len(SHAPES)
