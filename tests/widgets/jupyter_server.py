"""A real JupyterLab on the loopback with a home of its own, and a notebook of it in a browser."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(home: Path, name: str, **environment: str) -> Iterator[str]:
    """Address of the notebook ``name``, which lies in ``home``, in a JupyterLab that ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {one: value for one, value in os.environ.items() if not one.startswith("JUPYTER_")}
    where = os.pathsep.join(str(path) for path in (ROOT, ROOT / "widgets"))
    own = {"HOME": str(home), "PYTHONPATH": where, "JUPYTER_PLATFORM_DIRS": "0", **environment}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=",
        "--ServerApp.port_retries=0", f"--ServerApp.root_dir={home}", "--LabApp.expose_app_in_browser=True",
        "--allow-root", "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**kept, **own}, cwd=home, stdout=log, stderr=log)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{base}/api", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (home / "log").read_text()
                time.sleep(0.2)
        yield f"{base}/lab/tree/{name}"
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def page_of(browser: Any, url: str) -> Iterator[Any]:
    """The notebook at ``url``, open, its kernel idle; the page has ``requests`` and ``errors``."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.requests, page.errors = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(url)
    idle = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    page.wait_for_function(idle, timeout=90_000)
    yield page
    context.close()


def run_cell(page: Any, index: int, *, wait: bool = True, seconds: float = 60) -> None:
    """Run one cell as a person does; by default until it is done."""
    page.evaluate(
        """i => { const book = jupyterapp.shell.currentWidget; book.content.activeCellIndex = i; book.content.deselectAll();
                  jupyterapp.commands.execute('notebook:run-cell'); return 1 }""",
        index,
    )
    if wait:
        done = """i => { const model = jupyterapp.shell.currentWidget.content.widgets[i].model;
                       return model.executionState === 'idle' && model.executionCount }"""
        page.wait_for_function(done, arg=index, timeout=seconds * 1e3)


def foreign(page: Any) -> list[str]:
    """Requests that left this machine."""
    here = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
    return [url for url in page.requests if not url.startswith(here)]
