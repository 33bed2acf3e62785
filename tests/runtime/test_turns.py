"""From clock readings to metrics, on a timeline written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.runtime.turns import Making, Timeline, because, describe_alternative, turn_of
from kvlab.state.tokens import pack_ids

SECOND = 10**9


class Parent:
    """What a turn asks of the state it continues."""

    n_tokens = 100


def header(**timing: Any) -> dict[str, Any]:
    return {
        "n_prompt": 7,
        "generated": pack_ids([5, 6, 2]),
        "kv_ids": pack_ids(range(9)),
        "finish": "stop",
        "timing": {
            "worker": "w0",
            "started_ns": 14 * SECOND,
            "first_token_ns": 16 * SECOND,
            "finished_ns": 19 * SECOND,
            "prefill_seconds": 1.5,
            "decode_seconds": 3.0,
            "past": [],
            **timing,
        },
    }


def measure(**change: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    values: dict[str, Any] = {
        "node": "editor",
        "texts_ready_ns": 10 * SECOND,
        "states_ready_ns": 11 * SECOND,
        "own": frozenset(),
        "header": header(),
        "now_ns": 20 * SECOND,
        "parent": Parent(),
        "text": "said",
        "timeline": Timeline(),
        "before": {},
        "remade": [],
        "made": {},
    }
    return turn_of(**{**values, **change})


def came(recipe: str, arrived: str, seconds: float = 0.0, nbytes: int = 64) -> dict[str, Any]:
    return {"recipe": recipe, "arrived": arrived, "seconds": seconds, "nbytes": nbytes}


def test_a_turn_on_an_idle_worker() -> None:
    turn, actual = measure()
    assert turn["ttft_seconds"] == 6.0
    assert turn["queue_seconds"] == 0.0
    assert (turn["n_prefilled"], turn["n_reused"], turn["n_generated"]) == (7, 100, 3)
    assert turn["prompt_tokens"] == turn["n_prefilled"] + turn["n_reused"]
    # 9 s from the state's being there to the answer's, less 1.5 of prefill and 3 of decode.
    assert turn["overhead_seconds"] == pytest.approx(4.5)
    assert turn["token_ids"] == (5, 6, 2)
    assert (turn["worker"], turn["finish"], turn["text"]) == ("w0", "stop", "said")
    # 5 s from the state's being there to the first token.
    assert sum(actual["terms"].values()) == pytest.approx(5.0)
    assert actual["terms"]["resume"] == 1.5


def test_waiting_for_a_busy_worker_is_queue_and_not_latency() -> None:
    timeline = Timeline()
    timeline.add("w0", 8 * SECOND, 13 * SECOND, "planner")
    timeline.add("w1", 8 * SECOND, 14 * SECOND, "reviewer")
    turn, actual = measure(timeline=timeline)
    assert turn["queue_seconds"] == 3.0
    assert turn["ttft_seconds"] == 3.0
    assert actual["terms"]["queue"] == 2.0
    assert turn["overhead_seconds"] == pytest.approx(2.5)


def test_making_the_state_it_needs_is_no_queue() -> None:
    timeline = Timeline()
    timeline.add("w0", 10 * SECOND, 13 * SECOND, "prefix-1")
    timeline.add("w0", 13 * SECOND, 14 * SECOND, "other")
    turn, _ = measure(timeline=timeline, own=frozenset({"prefix-1"}))
    assert turn["queue_seconds"] == 1.0
    assert turn["ttft_seconds"] == 5.0


def test_siblings_of_one_batch_do_not_queue_for_each_other() -> None:
    timeline = Timeline()
    turns = [measure(timeline=timeline, node=f"branch-{i}")[0] for i in range(3)]
    assert [turn["queue_seconds"] for turn in turns] == [0.0, 0.0, 0.0]
    assert timeline.busy_ns("w0", 0, 30 * SECOND) == 5 * SECOND
    late, _ = measure(timeline=timeline, header=header(started_ns=19 * SECOND, first_token_ns=20 * SECOND))
    assert late["queue_seconds"] == 5.0


@pytest.mark.parametrize(
    ("past", "before", "how", "seconds", "nbytes"),
    [
        ([], {}, "recompute", 0.0, 0),
        ([came("a", "computed"), came("b", "map", 9)], {"a": True, "b": True}, "in place", 0.0, 0),
        ([came("a", "computed"), came("b", "map", 0.5), came("c", "map", 0.2)], {"a": True}, "map", 0.5, 0),
        ([came("a", "map", 0.9), came("b", "transfer", 0.5), came("c", "transfer", 0.7)], {}, "transfer", 0.7, 128),
        ([came("a", "transfer", 0.5), came("b", "transfer", 0.7)], {"b": True}, "transfer", 0.5, 64),
    ],
)
def test_how_the_state_came(
    past: list[dict[str, Any]], before: dict[str, bool], how: str, seconds: float, nbytes: int
) -> None:
    _, actual = measure(header=header(past=past), before=before)
    assert (actual["how"], actual["terms"]["transfer"], actual["nbytes"]) == (how, seconds, nbytes)
    assert sum(actual["terms"].values()) == pytest.approx(5.0)


def test_what_was_made_again_counts_as_prefilled() -> None:
    again = {"recipe": "a", "kv_ids": pack_ids(range(40)), "timing": {"prefill_seconds": 0.5}}
    turn, actual = measure(header=header(past=[came("a", "computed")]), remade=[again])
    assert (turn["n_prefilled"], turn["n_reused"]) == (47, 60)
    assert turn["prefill_seconds"] == 2.0
    assert actual["how"] == "recompute"
    assert (actual["terms"]["prefill"], actual["terms"]["resume"]) == (0.5, 1.5)


def test_what_was_lost_and_made_again_by_itself_counts_as_prefilled_and_is_said() -> None:
    making = {"made_ns": 5, "n_tokens": 40, "making_seconds": 0.5}
    past = [{**came("a", "computed"), **making}, {**came("b", "computed"), **making}]
    made = {"a": Making(4, ("w1",)), "b": Making(5, ("w0",))}
    turn, actual = measure(header=header(past=past), before={"a": True, "b": True}, made=made)
    assert (turn["n_prefilled"], turn["n_reused"]) == (47, 60)
    assert (actual["how"], actual["terms"]["prefill"]) == ("recompute", 0.5)
    assert because("map", "w0", actual) == "planned map: 40 tokens were lost with w1 and made again for w0"
    # The making that was meant, or one that nobody knew of, was not lost.
    for known in ({"a": Making(5, ("w1",)), "b": Making(5, ("w0",))}, {"a": Making(0, ()), "b": Making(5, ("w0",))}):
        turn, actual = measure(header=header(past=past), before={"a": True, "b": True}, made=known)
        assert (actual["how"], turn["n_reused"], because("map", "w0", actual)) == ("in place", 100, None)


def test_what_another_worker_did_says_so() -> None:
    _, actual = measure(header=header(past=[came("a", "computed")]))
    assert because("map", "w0", actual) is None
    assert because("map", "w1", actual) == "planned map: w1 was lost, and w0 did it"
    assert because("map", "w1", actual, "it was damaged") == "planned map: it was damaged"


def test_an_alternative_as_plain_values_says_everything() -> None:
    from kvlab.cost.roads import Alternative, Split

    told = describe_alternative(
        Alternative("map", "w1", {"queue": 1.0, "transfer": 0.5}, 0, 12, split=Split("doc", 5), excluded="too slow")
    )
    assert told == {
        "how": "map", "worker": "w1", "seconds": 1.5, "terms": {"queue": 1.0, "transfer": 0.5},
        "nbytes": 0, "missing_tokens": 12, "split": ["doc", 5], "excluded": "too slow",
    }  # fmt: skip
