"""Runs that earlier versions left behind open for ever, and say the same."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from kvlab.store.runs import open_run
from kvlab.store.schema import FORMAT_VERSION

FIXTURES = Path(__file__).parent / "fixtures"


def test_every_version_has_its_fixture() -> None:
    assert sorted(path.name for path in FIXTURES.iterdir()) == [f"v{n}" for n in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_an_old_run_opens_and_says_what_it_said(version: int) -> None:
    run = open_run(FIXTURES / f"v{version}")
    expected = json.loads((FIXTURES / f"v{version}" / "expected.json").read_text(encoding="utf-8"))
    world = run.world
    assert run.complete
    assert run.config["format_version"] == version
    assert (world.n_events, world.peak_kv_bytes, world.bytes_moved, world.wall_seconds) == (
        expected["n_events"],
        expected["peak_kv_bytes"],
        expected["bytes_moved"],
        expected["wall_seconds"],
    )
    assert {name: run.tables[name].num_rows for name in expected["rows"]} == expected["rows"]
    assert {row["agent"]: row["text"] for row in run.tables["turns"].to_pylist()} == expected["texts"]
    decisions = {row["edge"]: [row["chosen"], row["actual_how"]] for row in run.tables["edges"].to_pylist()}
    assert decisions == expected["decisions"]
    assert "planner" in str(run)


def test_tables_can_be_queried_as_they_are() -> None:
    run = open_run(FIXTURES / "v1")
    turns, events = run.tables["turns"], run.events
    assert (turns.num_rows, events.num_rows) > (0, 0)
    assert duckdb.sql("select sum(n_reused) from turns").fetchall() == [(sum(turns["n_reused"].to_pylist()),)]
    (chosen,) = duckdb.sql(
        "select detail->>'chosen' from events where edge = 'planner->reviewer-2' and kind = 'decision'"
    ).fetchall()
    assert chosen == ("transfer",)
    assert turns.to_pandas()["text"].str.len().min() > 0
