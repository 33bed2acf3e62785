"""The inspector in a real JupyterLab: shown, live while the cell is busy, static when the run is over, no key leaks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
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
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a JupyterLab of its own home, on a notebook with the cells above."""
    import nbformat

    home = tmp_path_factory.mktemp("home")
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in (SET_UP, SHOW, BUSY, END)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, home / "live.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = os.pathsep.join(str(path) for path in (HERE.parents[1], HERE.parents[1] / "widgets"))
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": where, "JUPYTER_PLATFORM_DIRS": "0"}
    environment = {
        name: value for name, value in environment.items() if not name.startswith("JUPYTER_") or "PLATFORM" in name
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=",
        "--ServerApp.port_retries=0", f"--ServerApp.root_dir={home}", "--LabApp.expose_app_in_browser=True",
        "--allow-root", "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=log)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{base}/api", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (home / "log").read_text()
                time.sleep(0.2)
        yield f"{base}/lab/tree/live.ipynb"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def lab_page(jupyter: str, browser: Any) -> Iterator[Any]:
    """The notebook, open, its kernel idle."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.requests, page.errors = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(jupyter)
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
                           timeout=90_000)  # fmt: skip
    yield page
    context.close()


def run_cell(page: Any, index: int, *, wait: bool = True) -> None:
    page.evaluate(
        """i => { const book = jupyterapp.shell.currentWidget; book.content.activeCellIndex = i; book.content.deselectAll();
                  jupyterapp.commands.execute('notebook:run-cell'); return 1 }""",
        index,
    )
    if wait:
        done = """i => { const model = jupyterapp.shell.currentWidget.content.widgets[i].model;
                       return model.executionState === 'idle' && model.executionCount }"""
        page.wait_for_function(done, arg=index, timeout=60_000)


def held(page: Any) -> int:
    """Events in the browser. Panel's shadow roots hide the inspector from ``document.querySelector``."""
    return int(page.locator(INSPECTOR).evaluate("root => root.kvlab.store.n"))


def until(page: Any, told: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not told():
        assert time.monotonic() < end
        page.wait_for_timeout(100)


def test_a_live_run_in_a_cell(lab_page: Any) -> None:
    page = lab_page
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
    assert [
        url for url in page.requests if not url.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:"))
    ] == []
    assert page.errors == []
