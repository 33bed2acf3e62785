"""Notebooks are kept without outputs, and the tour runs from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

BOOKS = Path(__file__).parents[2] / "notebooks"
TOUR = BOOKS / "00_tour.ipynb"
CHECK = """
import gc, json, threading
run.wait()
for thread in threading.enumerate():
    if thread.name == "kvlab-inspector":
        thread.join(20)
gc.collect()
print(json.dumps({"status": run.status, "agents": {name: run[name].text for name in ("scout", "planner", "critic", "editor")},
                  "edges": [{name: row[name] for name in ("edge", "chosen", "actual_how", "actual_seconds")}
                            for row in run.tables["edges"].to_pylist()],
                  "rows": sum(type(one).__name__ == "RunRows" for one in gc.get_objects())}))
lab.close()
"""


@pytest.mark.parametrize("path", sorted(BOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(300)
def test_the_tour_runs_and_decides_more_than_one_way(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("KVLAB_RUNS", str(tmp_path / "runs"))
    book: Any = nbformat.read(TOUR, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert len(code) == 3
    book.cells.append(nbformat.v4.new_code_cell(CHECK))
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [one for cell in code + book.cells[-1:] for one in cell.outputs if one.output_type == "stream"]
    assert [one.text for one in said if one.name == "stderr"] == []
    told = json.loads("".join(one.text for one in book.cells[-1].outputs if one.output_type == "stream"))
    assert told["status"] == "done"
    assert all(told["agents"].values())
    assert len({edge["chosen"] for edge in told["edges"]}) > 1  # else the tour shows nothing to compare
    assert all(edge["actual_how"] and edge["actual_seconds"] > 0 for edge in told["edges"])
    assert told["rows"] == 0  # what is shown of a run that is over needs none in the kernel
    shown = code[-1].outputs
    assert [one for one in shown if one.output_type == "error"] == []
    assert any("application/vnd.bokehjs_exec.v0+json" in one.get("data", {}) or "iframe" in str(one) for one in shown)
