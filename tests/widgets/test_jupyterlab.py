"""The inspector in a real JupyterLab: shown, live while the cell is busy, static when the run is over, no key leaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
INSPECTOR = '[data-kv="inspector"]'

SET_UP = f"""
import sys, threading, time
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent / "store")!r}]
import kvlab, kvlab_widgets, review_run
from kvlab.store.runs import new_run_folder
events = review_run.review_events("state")
folder = new_run_folder("live", root="runs")
folder.log.append(events[:40]); folder.log.flush()
def write():
    for start in range(40, 120, 4):
        time.sleep(0.15)
        folder.log.append(events[start:start + 4]); folder.log.flush()
"""
SHOW = "kvlab_widgets.inspect(kvlab.open_run(folder.path))"
BUSY = "threading.Thread(target=write).start(); time.sleep(8)"
END = "folder.log.append(events[120:]); folder.complete()"


@pytest.fixture(scope="module")
def lab_page(jupyter_server: Any, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A notebook of the cells above in a JupyterLab of its own."""
    import nbformat

    home = tmp_path_factory.mktemp("home")
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in (SET_UP, SHOW, BUSY, END)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, home / "live.ipynb")
    with jupyter_server.serving(home, "live.ipynb") as url, jupyter_server.page_of(browser, url) as page:
        yield page


def held(page: Any) -> int:
    """Events in the browser. Panel's shadow roots hide the inspector from ``document.querySelector``."""
    return int(page.locator(INSPECTOR).evaluate("root => root.kvlab.store.n"))


def until(page: Any, told: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not told():
        assert time.monotonic() < end
        page.wait_for_timeout(100)


def test_a_live_run_in_a_cell(lab_page: Any, jupyter_server: Any) -> None:
    page, run_cell = lab_page, jupyter_server.run_cell
    run_cell(page, 0)
    run_cell(page, 1)
    page.wait_for_selector(f'{INSPECTOR}[data-kv-ready="1"]', timeout=30_000)
    assert page.locator('[data-kv="status"]').inner_text() == "live"
    until(page, lambda: held(page) == 40)

    run_cell(page, 2, wait=False)
    busy = "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'"
    page.wait_for_function(busy)
    until(page, lambda: held(page) > 80 and page.evaluate(busy), 8)  # rows arrive in a busy cell
    page.locator(INSPECTOR).focus()
    n_cells = "() => jupyterapp.shell.currentWidget.content.widgets.length"
    before = page.evaluate(n_cells)
    for key in (
        "Home",
        "ArrowRight",
        "ArrowRight",
        "a",
        "b",
        "d",
        "d",
        "x",
        "m",
        "z",
        "Shift+ArrowLeft",
        "End",
        "]",
        "[",
    ):
        page.keyboard.press(key)
    assert page.evaluate(n_cells) == before  # none of them was JupyterLab's
    page.wait_for_function(
        "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'", timeout=20_000
    )

    # Python knows where the person is once the mirror has been sent, which waits for quiet; then messages keep their order.
    page.locator(INSPECTOR).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    mirrored = "root => { const c = root.kvlab; return c.told.mirror.data.k[0] === c.k && !c.told.mirror.data.live[0] }"
    until(page, lambda: bool(page.locator(INSPECTOR).evaluate(mirrored)))
    run_cell(page, 3)
    frame = page.frame_locator('iframe[title="kvlab inspector"]')
    frame.locator(f'{INSPECTOR}[data-kv-ready="1"]').wait_for(timeout=30_000)
    # The copy begins where the person was: at the second moment.
    assert frame.locator('[data-kv="status"]').inner_text().endswith("ahead")
    assert jupyter_server.foreign(page) == []
    assert page.errors == []
