"""A shortened column makes the same column again, whatever is in it; a run's tables do too."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvlab_widgets.columns import restored, rounded, shortened
from kvlab_widgets.packing import SUM, as_json, packed, unpacked
from kvlab_widgets.rows import RunRows

REAL = st.floats(allow_nan=False, allow_infinity=False).map(rounded)
TEXT = st.text(st.sampled_from("s0129. →\u202f=\0é"), max_size=12)
TERMS = st.dictionaries(st.sampled_from(["queue", "transfer", "prefill", "7"]), REAL, max_size=3)
ROW = st.tuples(st.integers(0, 5), TEXT, st.none() | REAL, TERMS).map(list)


def again(column: list[Any]) -> list[Any]:
    return restored(json.loads(json.dumps(shortened(column), allow_nan=False)))


@given(
    st.one_of(
        st.lists(st.integers(-(2**53), 2**53)), st.lists(st.sampled_from([0, 4096, 8192])), st.lists(REAL),
        st.lists(st.integers(0, 9) | REAL), st.lists(TEXT), st.lists(st.none() | st.integers() | TEXT | st.booleans()),
        st.lists(TERMS), st.lists(st.lists(ROW, max_size=4)), st.lists(st.lists(st.integers(0, 9))),
    )
)  # fmt: skip
def test_a_column_comes_back(column: list[Any]) -> None:
    found = again(column)
    assert found == column
    assert json.dumps(found) == json.dumps(column) or {type(one) for one in column} >= {int, float} or not column


@pytest.mark.parametrize(
    "column",
    [
        list(range(1000, 9000, 8)),
        [f"s{i} → s{i + 4}: took {i % 7}.50 s" for i in range(1000)],
        [i / 1000 for i in range(1000)],
    ],
)
def test_what_runs_on_takes_a_tenth_of_what_deflating_alone_leaves(column: list[Any]) -> None:
    def size(told: Any) -> int:
        return len(zlib.compress(json.dumps(told).encode(), 9))

    assert 10 * size(shortened(column)) < size(column)
    assert again(column) == column


def test_a_run_comes_back_and_its_sums_are_not_sent(generate: Any) -> None:
    rows = RunRows()
    rows.feed(generate.make_events(300, alive=40))
    batch = rows.take()
    sent = packed(batch)
    assert unpacked(sent) == json.loads(as_json(batch))
    told = json.loads(zlib.decompress(sent))["tables"]
    assert told["spans"]["t1"] == {"like": ["events", "t", "born", 1]}


def test_alternatives_are_sent_only_where_they_do_not_follow_from_what_was_seen(decided_run: Any) -> None:
    rows = RunRows()
    rows.feed(decided_run.decided_events())
    batch = rows.take()
    told = batch["tables"]["decisions"]
    sent = {edge for edge, rows in zip(told["edge"], told["alternatives"], strict=True) if rows}
    assert sent == {"paper→barred", "paper→old"}
    assert unpacked(packed(batch)) == json.loads(as_json(batch))
    whole = json.loads(zlib.decompress(packed(batch)))["tables"]["decisions"]["alternatives"]
    assert json.dumps(whole["rows"][2]).count(SUM) >= 1


def test_a_later_batch_comes_back_though_its_rows_refer_to_earlier_ones(generate: Any) -> None:
    rows, events = RunRows(), generate.make_events(60, alive=10)
    rows.feed(events[:200])
    rows.take()
    rows.feed(events[200:])
    batch = rows.take()
    assert unpacked(packed(batch)) == json.loads(as_json(batch))
