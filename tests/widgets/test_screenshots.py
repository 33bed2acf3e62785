"""The pictures of the documentation and the contact sheet, taken of a run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.screenshots import SIZES, THEMES, pictures, sheet, telling_edge

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _chromium(browser: Any) -> None:
    """Skips or fails where there is no browser, as other tests do."""


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Playwright opens no second browser in a thread that has one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments).result()


def test_pictures_have_their_size_and_theme(small: Any, tmp_path: Path) -> None:
    from PIL import Image

    written = apart(pictures, small, tmp_path / "images")
    shown = {path.stem: Image.open(path).convert("L") for path in written}
    assert shown["inspector"].size == shown["inspector_dark"].size == SIZES["screen"]
    assert shown["inspector_cell"].size == shown["inspector_cell_dark"].size == SIZES["cell"]
    for name, picture in shown.items():
        ground = max(range(256), key=picture.histogram().__getitem__)
        assert (ground < 64) if name.endswith("_dark") else (ground > 192)
        assert len(picture.getcolors()) > 32  # something is drawn
    width, height = shown["inspector_decision"].size
    assert 300 < width < 700
    assert 200 < height < 700
    assert all(path.stat().st_size < 500_000 for path in written)


def test_the_sheet_has_every_size_theme_and_state(small: Any, tmp_path: Path) -> None:
    page = apart(sheet, [small], tmp_path)
    shots = sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(shots) == 6 * len(SIZES) * len(THEMES)
    assert all(f'src="{name}"' in page.read_text() for name in shots)


def test_the_edge_that_is_shown_has_the_most_alternatives(small: Any) -> None:
    edges = small.tables["edges"].to_pylist()
    chosen = telling_edge(small)
    assert all(
        chosen["alternatives"].count('"excluded": null') >= row["alternatives"].count('"excluded": null')
        for row in edges
    )
