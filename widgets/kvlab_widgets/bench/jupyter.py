"""A JupyterLab of its own on loopback, with a notebook of given cells open in a browser."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvlab.errors import KVLabError
from kvlab_widgets.bench.browser import READY_MS, VIEWPORT

HOST = "127.0.0.1"
START_SECONDS = 90
NOTEBOOK = "bench.ipynb"
_KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"


class Notebook:
    """The notebook in a browser.

    Attributes
    ----------
    page
        Playwright's page.
    """

    def __init__(self, page: Any) -> None:
        self.page = page

    def run(self, index: int, *, wait: bool = True) -> None:
        """Run a cell. With ``wait``, return when it is done.

        Raises
        ------
        KVLabError
            If it raised.
        """
        self.page.evaluate(
            """i => { const book = jupyterapp.shell.currentWidget; book.content.activeCellIndex = i; book.content.deselectAll();
                      jupyterapp.commands.execute('notebook:run-cell'); return 1 }""",
            index,
        )
        self.page.wait_for_function(f"() => {_KERNEL}.status === 'busy' || {self._done(index)}", timeout=READY_MS)
        if wait:
            self.wait(index)

    def wait(self, index: int) -> None:
        """Return when a cell is done; raises as :meth:`run` does."""
        self.page.wait_for_function(f"() => {self._done(index)}", timeout=3 * READY_MS)
        outputs = self.page.evaluate(
            "i => jupyterapp.shell.currentWidget.content.widgets[i].model.outputs.toJSON()", index
        )
        for output in outputs:
            if output["output_type"] == "error":
                raise KVLabError(f"a cell raised {output['ename']}: {output['evalue']}", cell=index)

    @property
    def busy(self) -> bool:
        """Whether the kernel is at work."""
        return bool(self.page.evaluate(f"() => {_KERNEL}.status === 'busy'"))

    @staticmethod
    def _done(index: int) -> str:
        model = f"jupyterapp.shell.currentWidget.content.widgets[{index}].model"
        return f"({model}.executionState === 'idle' && {model}.executionCount)"


@contextmanager
def serving(home: Path, **environment: str) -> Iterator[str]:
    """A JupyterLab with ``home`` as its home and root, on loopback, without a token; ends with the block.

    Yields
    ------
    str
        Its address.

    Raises
    ------
    KVLabError
        If it does not answer.
    """
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    # Else it asks Node, each time a page is opened, whether it should be built anew.
    settings = home / ".jupyter" / "labconfig" / "page_config.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('{"buildCheck": false, "buildAvailable": false}', encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_")}
    own = {
        "HOME": str(home), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "JUPYTER_PLATFORM_DIRS": "0",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", f"--ip={HOST}", f"--port={port}", "--allow-root",
        "--IdentityProvider.token=", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={home}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  ourselves
            command, env={**kept, **own, **environment}, cwd=home, stdout=log, stderr=log
        )
    try:
        _wait_for(process, f"http://{HOST}:{port}/api", home / "log")
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def notebook(browser: Any, home: Path, cells: Sequence[str]) -> Iterator[Notebook]:
    """Start JupyterLab in ``home``, and open a notebook of ``cells``.

    Raises
    ------
    MissingExtra
        From the caller's :func:`kvlab.display.views.view`, if JupyterLab is not installed.
    KVLabError
        If it does not answer.
    """
    import jupyterlab  # noqa: F401  found missing here, not in a process that ends
    import nbformat

    written = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(written, home / NOTEBOOK)
    with serving(home) as base:
        context = browser.new_context(viewport=VIEWPORT)
        page = context.new_page()
        page.goto(f"{base}/lab/tree/{NOTEBOOK}")
        page.wait_for_function(
            f"() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel && {_KERNEL}.status === 'idle'",
            timeout=READY_MS,
        )
        # A folded side bar leaves the width to the cells.
        page.evaluate("() => { jupyterapp.shell.collapseLeft(); return 1 }")
        yield Notebook(page)
        context.close()


def _wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310  our own loopback address
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise KVLabError("JupyterLab did not start", hint=log.read_text(encoding="utf-8", errors="replace")[-800:])
