"""axe finds nothing critical and nothing serious: file, served page and cell; light and dark; every tab and table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.export import write_page
from kvlab_widgets.page import PageServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

INSPECTOR = '[data-kv="inspector"]'
LOOK = """async (root, script) => {
  if (!window.axe) (0, eval)(script);
  const told = await axe.run(root, { resultTypes: ["violations"] });
  return { passes: told.passes.length, found: told.violations.filter(one => ["critical", "serious"].includes(one.impact))
    .flatMap(one => one.nodes.map(node => `${one.id}: ${node.html} ${node.failureSummary}`)) };
}"""


@pytest.fixture(scope="module")
def axe_script() -> str:
    """axe-core itself, from the package that carries it."""
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def look(axe_script: str) -> Callable[[Any], None]:
    """``look(root)``: assert that axe looked at an inspector, and found nothing that matters."""

    def look(root: Any) -> None:
        told = root.evaluate(LOOK, axe_script)
        assert told["found"] == []
        assert told["passes"] > 10

    return look


def everything(shown: Any, look: Callable[[Any], None], n: int) -> None:
    """Look at every tab, then at every table, then at the keys; at a moment with a decision and a selection."""
    shown.move(n)
    shown.root.evaluate("root => root.kvlab.select(root.kvlab.store.nodes.x.length - 1)")
    shown.drawn(n)
    tabs = shown.page.locator('[role="tab"]')
    for turn in range(max(1, tabs.count())):
        if tabs.count():
            tabs.nth(turn).click()
            shown.page.wait_for_timeout(150)
        look(shown.root)
    for turn in range(max(1, tabs.count())):
        if tabs.count():
            tabs.nth(turn).click()
            shown.page.wait_for_timeout(150)
        closed = shown.page.locator('.as-table[aria-pressed="false"]:visible')
        while closed.count():
            closed.first.click()
        shown.page.wait_for_timeout(150)
        look(shown.root)
    shown.page.locator('[data-kv="help"]').click()
    look(shown.root)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["page", "cell"])
def test_an_exported_page(
    scheme: str, page: bool, small: Any, opened: Any, look: Callable[[Any], None], tmp_path: Path
) -> None:
    shown = opened(write_page(small, tmp_path / "run.html", page=page), color_scheme=scheme)
    everything(shown, look, small.events.num_rows)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_served_page(scheme: str, small: Any, opened: Any, look: Callable[[Any], None]) -> None:
    ready, found = threading.Event(), []

    def work() -> None:
        import asyncio

        asyncio.set_event_loop(asyncio.new_event_loop())
        found.append(PageServer(small))
        ready.set()
        found[0].run()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        everything(opened(found[0].url, color_scheme=scheme), look, small.events.num_rows)
    finally:
        found[0].stop()
        thread.join(10)


@pytest.mark.slow
def test_a_cell_of_jupyterlab(book: Any, small: Any, look: Callable[[Any], None]) -> None:
    shown = book(f"import kvlab\nkvlab.open_run({str(small.path)!r}).inspect()")
    shown.run(0)
    root = shown.frame().locator(INSPECTOR)
    for theme in ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Light"):
        shown.wear(theme)
        shown.page.wait_for_timeout(500)
        assert root.get_attribute("data-kv-theme") == ("dark" if "Dark" in theme else "light")
        look(root)
