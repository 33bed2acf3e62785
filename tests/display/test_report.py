"""The report: one page without requests, a folder with everything, every text escaped, every number with its unit."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from pyarrow import parquet

from kvlab.bench import metrics
from kvlab.display.decisions_page import decisions_html
from kvlab.display.drawing import alternatives_of
from kvlab.display.quantities import seconds_text
from kvlab.display.report import write_report
from kvlab.display.report_page import definitions
from kvlab.errors import InvalidInput
from kvlab.store.fold import World
from kvlab.store.runs import new_run_folder, open_run

FETCHING = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "path", "rect", "circle", "polygon"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"meta", "path", "rect", "circle", "polygon"}:
            assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


@pytest.fixture
def page(tmp_path: Path, state: World, texts: list[World]) -> Page:
    return Page(write_report(tmp_path / "r.html", [*texts, state]).read_text(encoding="utf-8"))


def test_the_page_is_well_formed_and_asks_for_nothing(page: Page, tmp_path: Path) -> None:
    assert page.open == []
    assert not [tag for tag, _ in page.tags if tag in {"script", "link", "img", "iframe", "object", "embed", "base"}]
    assert not [attrs for _, attrs in page.tags if FETCHING & set(attrs)]
    written = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "url(" not in written
    assert "@import" not in written


def test_texts_are_shown_escaped(page: Page, review: ModuleType) -> None:
    for answer in review.ANSWERS.values():
        assert answer in page.text


def test_the_stateflow_run_is_the_subject_whatever_the_order(page: Page) -> None:
    assert "State against text: first tokens" in page.text
    assert "5 of 5 agents answered with the very same tokens" in page.text


def test_every_alternative_and_every_term_is_on_the_page(state: World) -> None:
    for row in state.rows["edges"]:
        block = Page(decisions_html([row]))
        assert row["reason"] in block.text
        assert seconds_text(row["actual_seconds"]) in block.text
        for told in alternatives_of(row):
            if told["excluded"]:
                assert f"not possible: {told['excluded']}" in block.text
            else:
                assert seconds_text(told["seconds"]) in block.text
                for name, seconds in told["terms"].items():
                    assert name in block.text
                    assert seconds_text(seconds) in block.text
        assert block.text.count("predicted") >= 4
        assert "measured" in block.text
        assert block.text.count("✓") == 1
    assert "Planned transfer, did recompute: w0 did not send seg-planner within 2 s" in decisions_html(
        state.rows["edges"]
    )


def test_the_environment_is_exact(page: Page, state: World) -> None:
    for section in ("environment", "model", "config", "lab"):
        for key, value in state.run[section].items():
            assert f"{section}.{key}" in page.text
            assert str(value) in page.text


def test_every_metric_is_defined_on_the_page(page: Page) -> None:
    terms = dict(definitions())
    assert set(terms) >= {"TTFT", "tokens prefilled", "tokens reused", "bytes moved", "peak KV bytes", "Ω (overhead)"}
    for term, meaning in terms.items():
        assert term in page.text
        assert meaning in page.text
        assert meaning.split()[-1] in (metrics.__doc__ or "")


def test_redacted_it_has_no_text_of_anyone(
    tmp_path: Path, state: World, texts: list[World], review: ModuleType
) -> None:
    folder = write_report(tmp_path / "r", [state, *texts], redact=True)
    for file in folder.iterdir():
        written = file.read_bytes()
        for answer in review.ANSWERS.values():
            assert answer[:20].encode() not in written, file
    previews = parquet.read_table(folder / "states.parquet")["preview"]
    assert previews.null_count == len(previews) > 0


def test_a_folder_has_everything_and_is_marked_last(tmp_path: Path, state: World, texts: list[World]) -> None:
    folder = write_report(tmp_path / "report", [state, *texts])
    names = {file.name for file in folder.iterdir()}
    assert names == {
        "report.html",
        "summary.json",
        "summary.md",
        "summary.csv",
        "environment.json",
        "trace.json",
        "states.parquet",
        "decisions.parquet",
        "memory.parquet",
        "_COMPLETE",
    }
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["schema_version"] == 1
    assert [run["label"] for run in summary["runs"]] == ["stateflow", "textflow", "textflow 2"]
    assert summary["runs"][0]["bytes_moved"] == state.bytes_moved
    assert len(summary["runs"][0]["decisions"]) == 5
    with (folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 + 5 + 5
    assert float(rows[1]["ttft_seconds"]) == (state.find("turns", "planner") or {})["ttft_seconds"]
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert environment["stateflow"]["environment"] == state.run["environment"]


def test_a_folder_has_the_tables_and_the_trace(tmp_path: Path, state: World, texts: list[World]) -> None:
    folder = write_report(tmp_path / "report", [state, *texts])
    decisions = parquet.read_table(folder / "decisions.parquet").to_pylist()
    assert [row.pop("run") for row in decisions] == ["stateflow"] * 5
    assert decisions == state.table("edges").to_pylist()
    assert set(parquet.read_table(folder / "memory.parquet")["run"].to_pylist()) == {
        "stateflow",
        "textflow",
        "textflow 2",
    }
    work = [e for e in json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"] if e["ph"] == "X"]
    assert len(work) == 6 + 5 + 5
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in work)


def test_an_earlier_report_is_replaced(tmp_path: Path, state: World) -> None:
    for name in ("r.html", "r.md", "r.json"):
        (tmp_path / name).write_text("old")
        write_report(tmp_path / name, [state])
        assert "planner" in (tmp_path / name).read_text(encoding="utf-8")
    assert {file.name for file in tmp_path.iterdir()} == {"r.html", "r.md", "r.json"}


def test_saved_runs_are_reported_with_their_configuration(tmp_path: Path, review: ModuleType) -> None:
    folder = new_run_folder("review", root=tmp_path)
    folder.write_config({"command": "kvlab run review.yaml", "git": "abc123 dirty"})
    folder.log.append(review.review_events("state"))
    folder.complete()
    page = Page(write_report(tmp_path / "r.html", [open_run(folder.path)]).read_text(encoding="utf-8"))
    assert "kvlab run review.yaml" in page.text
    assert "abc123 dirty" in page.text
    assert str(folder.path) in page.text


def test_a_run_in_its_middle_can_be_reported(tmp_path: Path, review: ModuleType) -> None:
    world = World.empty()
    for event in review.review_events("state"):
        Page(write_report(tmp_path / "r.html", [world.apply(event)]).read_text(encoding="utf-8"))


def test_a_stepped_run_is_marked_in_every_form(tmp_path: Path, state: World, texts: list[World]) -> None:
    state.run["stepped"] = True
    said = "stateflow: stepped by a person"
    assert said in write_report(tmp_path / "r.html", [state, *texts]).read_text(encoding="utf-8")
    assert said in write_report(tmp_path / "r.md", [state, *texts]).read_text(encoding="utf-8")
    runs = json.loads(write_report(tmp_path / "r.json", [state, *texts]).read_text(encoding="utf-8"))["runs"]
    assert [run["stepped"] for run in runs] == [True, False, False]


def test_refusals(tmp_path: Path, state: World) -> None:
    with pytest.raises(InvalidInput, match="at least one run"):
        write_report(tmp_path / "r.html", [])
    with pytest.raises(InvalidInput, match=r"r\.pdf"):
        write_report(tmp_path / "r.pdf", [state])


def test_markdown_shows_texts_as_they_are(tmp_path: Path, state: World) -> None:
    written = write_report(tmp_path / "r.md", [state]).read_text(encoding="utf-8")
    assert "<script>" not in written
    assert "&lt;script&gt;" in written


def test_a_spreadsheet_runs_nothing(tmp_path: Path, state: World) -> None:
    for row in state.rows["agents"]:
        if row["agent"] == "planner":
            state._by_key["turns", "=cmd()"] = state.rows["turns"][0]
            row["agent"] = "=cmd()"
    folder = write_report(tmp_path / "r", [state])
    assert ",'=cmd()," in (folder / "summary.csv").read_text(encoding="utf-8")
