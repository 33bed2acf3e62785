"""The tour as a person meets it: three cells in a real JupyterLab, a run that is looked at while it goes on and after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(400)]

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"


@pytest.mark.usefixtures("smollm2")
def test_three_cells_show_a_run_to_its_end(book: Any) -> None:
    shown = book(TOUR)
    shown.run(1, 3, 5, seconds=180)
    frame = shown.frame(seconds=180)
    frame.locator('[data-kv="status"]', has_text=re.compile("^run done$")).wait_for(timeout=20_000)
    lanes = frame.locator('[data-kv="inspector"]').evaluate("root => root.kvlab.store.lanes")
    assert set(lanes) == {"scout", "paper", "planner", "critic", "editor"}
