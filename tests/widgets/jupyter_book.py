"""A notebook in a real JupyterLab, in a browser, and the inspectors in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

INSPECTOR = '[data-kv="inspector"]'
BAR = ".kvlab-run"
HERE_ONLY = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")


def write_notebook(path: Path, cells: list[str]) -> None:
    """Write a notebook of ``cells``."""
    import nbformat

    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, path)


class Book:
    """A notebook in JupyterLab, open in a tab of its own, its kernel idle."""

    def __init__(self, browser: Any, base: str, name: str) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"{base}/lab/workspaces/{name}/tree/{name}.ipynb")
        self.idle()

    def js(self, code: str, arg: Any = None) -> Any:
        """What ``code``, a function of (notebook panel, arg), returns."""
        return self.page.evaluate(f"arg => (({code})(jupyterapp.shell.currentWidget, arg))", arg)

    def wait(self, code: str, arg: Any = None, seconds: float = 60) -> None:
        """Until ``code``, a function of (notebook panel, arg), is true."""
        told = (
            f"arg => {{ const panel = window.jupyterapp?.shell?.currentWidget; return panel && ({code})(panel, arg) }}"
        )
        self.page.wait_for_function(told, arg=arg, timeout=seconds * 1e3)

    def interrupt(self) -> None:
        """Stop the cell that runs."""
        self.js("async panel => { await panel.sessionContext.session.kernel.interrupt(); return 1 }")

    def idle(self) -> None:
        """Until the kernel has nothing to do."""
        self.wait("panel => panel.sessionContext?.session?.kernel?.status === 'idle'", seconds=90)

    @property
    def busy(self) -> bool:
        """Whether a cell runs."""
        return bool(self.js("panel => panel.content.widgets.some(cell => cell.model.executionState === 'running')"))

    def run(self, *indices: int, wait: bool = True, seconds: float = 60) -> None:
        """Run cells, and wait until each is done."""
        for index in indices:
            run = """(panel, i) => { panel.content.activeCellIndex = i; panel.content.deselectAll();
                     jupyterapp.commands.execute('notebook:run-cell'); return 1 }"""
            done = """(panel, i) => { const model = panel.content.widgets[i].model;
                      return model.executionState === 'idle' && model.executionCount }"""
            begun = """(panel, i) => panel.content.widgets[i].model.executionState === 'running'"""
            self.js(run, index)
            self.wait(done if wait else begun, index, seconds)

    def printed(self, index: int) -> str:
        """What a cell has printed."""
        return str(
            self.js(
                "(panel, i) => panel.content.widgets[i].model.outputs.toJSON().map(o => o.text ?? '').join('')", index
            )
        )

    def frame(self, seconds: float = 30) -> Any:
        """The static copy, once it is there and ready."""
        frame = self.page.frame_locator('iframe[title="kvlab inspector"]')
        frame.locator(f'{INSPECTOR}[data-kv-ready="1"]').wait_for(timeout=seconds * 1e3)
        return frame

    def wear(self, theme: str) -> None:
        """Let JupyterLab change its theme."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', { theme }).then(() => 1)", theme
        )

    def inspector(self, nth: int = 0) -> Inspected:
        """The live inspector, once it is ready."""
        return Inspected(self, nth)

    def bar(self, name: str) -> Any:
        """A part of the run's buttons."""
        part = self.page.locator(f"{BAR}-{name}")
        return part.locator("select") if name in ("speed", "until", "roads") else part

    def pending(self, text: str, seconds: float = 30) -> str:
        """What the run's bar says, once it contains ``text``."""
        told = self.page.locator(f"{BAR} [data-kv=run-status]", has_text=text)
        told.wait_for(timeout=seconds * 1e3)
        return str(told.inner_text())

    @property
    def foreign(self) -> list[str]:
        """Requests that left this machine."""
        return [url for url in self.requests if not url.startswith(HERE_ONLY)]


class Inspected:
    """A live inspector in a notebook. Panel's shadow roots hide it from ``document.querySelector``."""

    def __init__(self, book: Book, nth: int) -> None:
        self.book = book
        self.root = book.page.locator(f'{INSPECTOR}[data-kv-ready="1"]').nth(nth)
        self.root.wait_for(timeout=30_000)

    def js(self, code: str) -> Any:
        """What ``code``, a function of the client, returns."""
        return self.root.evaluate(f"root => ({code})(root.kvlab)")

    def until(self, code: str, seconds: float = 30) -> None:
        """Until ``code``, a function of the client, is true."""
        end = time.monotonic() + seconds
        while not self.js(code):
            assert time.monotonic() < end, (code, self.seen)
            self.book.page.wait_for_timeout(50)

    def says(self, name: str) -> str:
        """Text of the element ``data-kv=name``."""
        return str(self.root.locator(f'[data-kv="{name}"]').first.inner_text())

    @property
    def seen(self) -> dict[str, Any]:
        """Where it is."""
        told = "c => ({k: c.k, n: c.store.n, selected: c.root.dataset.kvSelected ?? ''})"
        return dict(self.js(told))
