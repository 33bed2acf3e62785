"""What a cell shows of graphs and runs: HTML and text, user's text escaped, readable in light and dark."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvlab.store.runs import new_run_folder, open_run

HARMFUL = "<script>alert(1)</script>"


@pytest.fixture
def saved(tmp_path: Path, review: ModuleType) -> Any:
    """A saved run whose workflow has a harmful name."""
    events = review.review_events("state")
    events[0].detail["name"] = HARMFUL
    folder = new_run_folder("review", root=tmp_path)
    folder.log.append(events)
    folder.complete()
    return open_run(folder.path)


def test_a_saved_run(saved: Any) -> None:
    page = saved._repr_html_()
    assert HARMFUL not in page
    assert "&lt;script&gt;" in page
    assert 'body[data-jp-theme-light="false"]' in page
    assert "reviewer-1" in page
    assert "answers" in repr(saved)
    assert "reviewer-1" in str(saved)


def test_a_graph(review: ModuleType) -> None:
    graph = review.review_graph()
    page = graph._repr_html_()
    assert "<svg" in page
    assert "prefers-color-scheme:dark" in page.replace(" ", "")
    assert "planner" in str(graph)
