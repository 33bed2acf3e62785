"""The tour as a person meets it: three cells in a real JupyterLab, a run that is looked at while it goes on and after."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvlab.config import CACHE_VARIABLE, cache_dir

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(400)]

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"
INSPECTOR = '[data-kv="inspector"]'


def test_three_cells_show_a_run_to_its_end(jupyter_server: Any, browser: Any, smollm2: Path, tmp_path: Path) -> None:
    shutil.copy(TOUR, tmp_path)
    # The model and what was measured of this machine lie in the person's own cache; the home is the test's.
    cache = {CACHE_VARIABLE: str(cache_dir())}
    with (
        jupyter_server.serving(tmp_path, TOUR.name, **cache) as url,
        jupyter_server.page_of(browser, url) as page,
    ):
        for cell in (1, 3, 5):
            jupyter_server.run_cell(page, cell, seconds=180)
        frame = page.frame_locator('iframe[title="kvlab inspector"]')
        frame.locator(f'{INSPECTOR}[data-kv-ready="1"]').wait_for(timeout=180_000)
        assert frame.locator('[data-kv="status"]').inner_text() == "run done"
        lanes = frame.locator(INSPECTOR).evaluate("root => root.kvlab.store.lanes")
        assert set(lanes) == {"scout", "paper", "planner", "critic", "editor"}
        assert jupyter_server.foreign(page) == []
        assert page.errors == []
