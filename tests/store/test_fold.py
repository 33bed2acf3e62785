"""The world is a pure fold of events."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.store import schema
from kvlab.store.events import Event, Kind
from kvlab.store.fold import HANDLERS, World, fold


def test_every_kind_of_event_has_its_handler() -> None:
    assert set(HANDLERS) == set(Kind)


def test_every_table_has_its_documented_schema(events: list[Event]) -> None:
    world = fold(events)
    for name, expected in schema.TABLES.items():
        assert world.table(name).schema.equals(expected, check_metadata=True)
        assert world.table(name).num_rows > 0, name
        assert all(schema.column_docs(expected).values()), name


def test_the_world_at_k_is_the_fold_of_the_first_k(events: list[Event]) -> None:
    world = World.empty()
    for k in range(len(events) + 1):
        again = fold(events[:k])
        assert again.rows == world.rows
        assert (again.placed_bytes, again.peak_kv_bytes, again.bytes_moved) == (
            world.placed_bytes,
            world.peak_kv_bytes,
            world.bytes_moved,
        )
        if k < len(events):
            world.apply(events[k])


def test_a_table_taken_earlier_does_not_change(events: list[Event]) -> None:
    world = fold(events[:20])
    before = world.table("agents")
    rows = before.to_pylist()
    for event in events[20:]:
        world.apply(event)
    assert before.to_pylist() == rows
    assert world.table("agents").to_pylist() != rows


def test_an_unknown_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(KeyError, match="'edges'"):
        World.empty().table("egdes")


def test_agents_and_turns_tell_the_review(events: list[Event], review: ModuleType) -> None:
    world = fold(events)
    agents = {row["agent"]: row for row in world.table("agents").to_pylist()}
    assert list(agents) == ["context:paper", *review.AGENTS]
    assert {row["status"] for row in agents.values()} == {"done"}
    assert [agents[name]["n_generated"] for name in review.AGENTS] == [review.ANSWER] * 5
    turn = world.find("turns", "reviewer-3")
    assert turn is not None
    assert (turn["n_reused"], turn["n_prefilled"], turn["worker"]) == (1024, 96, "w1")


def test_a_decision_keeps_what_was_chosen_and_what_was_done(events: list[Event]) -> None:
    edge = fold(events).find("edges", "planner->reviewer-3")
    assert edge is not None
    assert (edge["chosen"], edge["actual_how"]) == ("transfer", "recompute")
    assert "did not send" in edge["because"]
    alternatives = json.loads(edge["alternatives"])
    chosen = next(row for row in alternatives if (row["how"], row["worker"]) == ("transfer", "w1"))
    assert edge["predicted_seconds"] == pytest.approx(sum(chosen["terms"].values()))
    assert edge["nbytes"] == chosen["nbytes"] > 0


def test_an_edge_decided_twice_has_two_rows_and_the_actual_goes_to_the_last() -> None:
    def told(kind: Kind, number: int, **detail: object) -> Event:
        return Event(kind, number, "c", number, edge="a->b", seconds=1.0, detail=dict(detail))

    world = fold(
        [
            told(Kind.DECISION, 1, source="a", target="b", chosen="transfer", alternatives=[]),
            told(Kind.DECISION, 2, source="a", target="b", chosen="recompute", alternatives=[]),
            told(Kind.DECISION_ACTUAL, 3, how="recompute"),
        ]
    )
    assert [row["actual_how"] for row in world.table("edges").to_pylist()] == [None, "recompute"]


def joined(worker: str, host: str) -> Event:
    return Event(Kind.WORKER_JOINED, 0, "c", 0, worker=worker, detail={"host": host})


def placed(segment: str, worker: str, nbytes: int, how: str = "computed") -> Event:
    return Event(Kind.SEGMENT_PLACED, 0, worker, 0, segment=segment, worker=worker, nbytes=nbytes, detail={"how": how})


def dropped(segment: str, worker: str) -> Event:
    return Event(Kind.SEGMENT_DROPPED, 0, worker, 0, segment=segment, worker=worker)


def test_a_map_adds_no_memory_until_it_is_all_that_is_left() -> None:
    world = fold([joined("a", "h"), joined("b", "h"), placed("s", "a", 100), placed("s", "b", 100, "map")])
    assert (world.placed_bytes, world.peak_placed_bytes) == (100, 100)
    world.apply(dropped("s", "a"))
    assert world.placed_bytes == 100
    world.apply(dropped("s", "b"))
    assert (world.placed_bytes, world.peak_placed_bytes) == (0, 100)


def test_a_transferred_copy_is_memory_of_its_own_and_a_lost_worker_takes_its_copies() -> None:
    lost = Event(Kind.WORKER_LOST, 9, "c", 0, worker="b", detail={"reason": "killed"})
    world = fold([joined("a", "h"), joined("b", "h"), placed("s", "a", 100), placed("s", "b", 100, "transfer")])
    assert world.placed_bytes == 200
    world.apply(lost)
    assert (world.placed_bytes, world.peak_placed_bytes) == (100, 200)
    stays = world.table("placements").to_pylist()
    assert [(row["worker"], row["dropped_seq"]) for row in stays] == [("a", None), ("b", 5)]
    assert {row["worker"]: row["kv_bytes"] for row in world.table("workers").to_pylist()} == {"a": 100, "b": 0}


def sampled(worker: str, nbytes: int, own: int | None) -> Event:
    return Event(Kind.MEMORY, 0, worker, 0, worker=worker, nbytes=nbytes, detail={"kv_unique_bytes": own})


def test_samples_add_up_what_each_worker_alone_holds() -> None:
    world = fold(
        [joined("a", "h"), joined("b", "h"), sampled("a", 100, 100), sampled("b", 120, 20), sampled("a", 0, 0)]
    )
    assert world.peak_sampled_bytes == world.peak_kv_bytes == 120
    assert sum(world.sampled.values()) == 20
    world.apply(placed("s", "a", 500))
    assert (world.peak_sampled_bytes, world.peak_kv_bytes) == (120, 500)
    world.apply(Event(Kind.WORKER_LOST, 0, "c", 0, worker="b"))
    assert world.sampled == {"a": 0}


def test_a_worker_that_joined_before_the_run_is_known_once_it_holds_something() -> None:
    world = fold([placed("s", "a", 5), joined("a", "h")])
    (row,) = world.table("workers").to_pylist()
    assert (row["worker"], row["host"], row["kv_bytes"], row["status"]) == ("a", "h", 5, "running")
    world = fold([placed("s", "a", 5), placed("s", "b", 5, "map"), joined("b", "h"), joined("a", "h")])
    assert world.placed_bytes == 5
    assert world.apply(dropped("s", "a")).apply(dropped("s", "b")).placed_bytes == 0


def test_siblings_in_one_batch_are_agents_of_their_own() -> None:
    world = fold([Event(Kind.ACTION_STARTED, 0, "w", 0, agent="a, b", action="x", worker="w", detail={"op": "resume"})])
    assert [(row["agent"], row["status"]) for row in world.rows["agents"]] == [("a", "running"), ("b", "running")]
    graph = {"nodes": [{"id": "a, b"}]}
    world = fold(
        [
            Event(Kind.RUN_STARTED, 0, "c", 0, detail={"graph": graph}),
            Event(Kind.TOKENS, 0, "w", 0, agent="a, b", n_tokens=2),
        ]
    )
    assert [(row["agent"], row["n_generated"]) for row in world.rows["agents"]] == [("a, b", 2)]


def test_tokens_count_once_whichever_source_is_late_and_not_for_failed_tries() -> None:
    started = Event(Kind.ACTION_STARTED, 0, "w", 0, agent="a", action="x", worker="w", detail={"op": "resume"})
    some = Event(Kind.TOKENS, 0, "w", 1, agent="a", n_tokens=3)
    ended = Event(Kind.ACTION_FINISHED, 0, "w", 2, agent="a", action="x", worker="w", seconds=1.0)
    turn = Event(Kind.TURN_FINISHED, 0, "c", 0, agent="a", detail={"n_generated": 6})
    for order in (
        [started, some, some, ended, turn],
        [turn, started, some, some, ended],
        [started, some, turn, some, ended],
    ):
        assert fold(order).rows["agents"][0]["n_generated"] == 6
        assert fold(order).rows["agents"][0]["status"] == "done"
    again = [started, some, started, some, some]
    assert [fold(again[:k]).rows["agents"][0]["n_generated"] for k in range(1, 6)] == [0, 3, 0, 3, 6]


def test_a_state_that_is_planned_first_is_one_row() -> None:
    planned = Event(Kind.STATE_PHASE, 1, "c", 0, state="s", detail={"now": "planned", "then": "materialized"})
    made = Event(
        Kind.STATE_CREATED, 2, "c", 1, state="s", agent="a", n_tokens=3, nbytes=9, detail={"operator": "resume"}
    )
    (row,) = fold([planned, made]).table("states").to_pylist()
    assert (row["phase"], row["operator"], row["n_tokens"], row["exact"]) == ("materialized", "resume", 3, True)


moves = st.lists(
    st.tuples(
        st.sampled_from(["place", "map", "transfer", "drop", "lose"]),
        st.sampled_from("abc"),
        st.sampled_from(["s1", "s2"]),
    ),
    max_size=40,
)
SIZES = {"s1": 100, "s2": 7}
HOSTS = {"a": "h1", "b": "h1", "c": "h2"}


@given(moves)
@settings(max_examples=200, deadline=None)
def test_held_bytes_equal_a_count_from_scratch(steps: list[tuple[str, str, str]]) -> None:
    """Oracle: a plain set of (segment, worker, how), counted anew after each step."""
    world = fold([joined(worker, host) for worker, host in HOSTS.items()])
    held: dict[tuple[str, str], str] = {}
    peak = 0
    for verb, worker, segment in steps:
        if verb == "drop":
            held.pop((segment, worker), None)
            world.apply(dropped(segment, worker))
        elif verb == "lose":
            held = {key: how for key, how in held.items() if key[1] != worker}
            world.apply(Event(Kind.WORKER_LOST, 0, "c", 0, worker=worker))
        else:
            how = {"place": "computed"}.get(verb, verb)
            held.setdefault((segment, worker), how)
            world.apply(placed(segment, worker, SIZES[segment], how))
        total = 0
        for name, nbytes in SIZES.items():
            for host in set(HOSTS.values()):
                ways = [how for (seg, at), how in held.items() if seg == name and HOSTS[at] == host]
                real = sum(how != "map" for how in ways)
                total += nbytes * (real or bool(ways))
        peak = max(peak, total)
        assert (world.placed_bytes, world.peak_placed_bytes) == (total, peak)
