"""A real browser, and runs to look at: a small one as the runtime tells it, and generated ones of any size."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kvlab
from kvlab.config import CACHE_VARIABLE, cache_dir

HERE = Path(__file__).parent
READY_MS = 15_000


def _module(name: str, path: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a JupyterLab of its own home; models and calibrations are the person's."""
    from kvlab_widgets.bench.jupyter import serving

    home = tmp_path_factory.mktemp("home")
    where = os.pathsep.join(str(path) for path in (HERE.parents[1], HERE.parents[1] / "widgets"))
    with serving(home, PYTHONPATH=where, **{CACHE_VARIABLE: str(cache_dir())}) as base:
        yield base, home


@pytest.fixture
def book(jupyter: tuple[str, Path], browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """``book(*cells)`` or ``book(path)``: a notebook, open.

    At the end nothing may have left this machine, and nothing may have gone wrong.
    """
    base, home = jupyter
    books = _module("kvlab_tests_jupyter_book", HERE / "jupyter_book.py")
    made: list[Any] = []

    def show(*cells: str | Path) -> Any:
        name = f"{re.sub(r'[^a-z_]+', '-', request.node.name)}-{time.time_ns()}"
        if isinstance(cells[0], Path):
            shutil.copy(cells[0], home / f"{name}.ipynb")
        else:
            books.write_notebook(home / f"{name}.ipynb", list(cells))
        made.append(books.Book(browser, base, name))
        return made[-1]

    yield show
    for one in made:
        one.js("async panel => { await panel.sessionContext.shutdown(); return 1 }")
        one.context.close()
        assert one.foreign == []
        assert one.errors == []


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """Generated runs."""
    from kvlab_widgets.bench import generated

    return generated


@pytest.fixture(scope="session")
def review() -> ModuleType:
    """Events of the review workflow."""
    return _module("kvlab_tests_review_run", HERE.parent / "store" / "review_run.py")


@pytest.fixture(scope="session")
def decided_run() -> ModuleType:
    """A run with a decision of every kind."""
    return _module("kvlab_tests_decided_run", HERE / "decided_run.py")


@pytest.fixture(scope="session")
def small(generate: ModuleType, review: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The review workflow as stateflow."""
    return kvlab.open_run(generate.write_run(tmp_path_factory.mktemp("runs"), review.review_events("state")))


@pytest.fixture(scope="session")
def large(generate: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """1,200 states of twelve agents."""
    return kvlab.open_run(generate.write_run(tmp_path_factory.mktemp("runs"), generate.make_events(1200)))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium. Its absence is a failure where tests must be complete."""
    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
    )
    if not path:
        told = "no Chromium on the path: apt-get install chromium"
        if os.environ.get("KVLAB_CI"):
            pytest.fail(told)
        pytest.skip(told)
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-accelerated-2d-canvas", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


class Opened:
    """An inspector in a browser, with everything that the page asked for and complained about."""

    def __init__(self, browser: Any, url: str, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1600, "height": 1000}, **context})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        self.page.goto(url)
        self.root = self.page.locator('[data-kv="inspector"]')
        self.page.wait_for_selector('[data-kv-ready="1"]', timeout=READY_MS)

    def move(self, k: int) -> None:
        """Put the cursor on moment ``k`` and wait until every view shows it."""
        self.root.evaluate("(root, k) => root.kvlab.moveTo(k)", k)
        self.drawn(k)

    def drawn(self, k: int) -> None:
        """Wait until every view shows moment ``k``."""
        self.page.wait_for_selector(f'[data-kv-k="{k}"][data-kv-drawn="{k}"]', timeout=READY_MS)

    def rows(self, view: str) -> list[list[str]]:
        """The cells of a view's native table."""
        if self.page.locator(f'[data-kv="table-{view}"]').get_attribute("aria-pressed") == "false":
            self.page.locator(f'[data-kv="table-{view}"]').click()
        body = self.page.locator(f'[data-kv="rows-{view}"] tbody')
        return body.evaluate("body => [...body.rows].map(row => [...row.cells].map(cell => cell.textContent))")

    def text(self, name: str) -> str:
        """Text of the element ``data-kv=name``."""
        return str(self.page.locator(f'[data-kv="{name}"]').inner_text())

    def foreign(self) -> list[str]:
        """Requests that left this machine or this file."""
        here = ("file:", "blob:", "data:", "http://127.0.0.1", "ws://127.0.0.1")
        return [url for url in self.requests if not url.startswith(here)]

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    """``opened(path or url, **context)``: an inspector, ready."""
    made: list[Opened] = []

    def show(where: Any, **context: Any) -> Opened:
        url = where.resolve().as_uri() if isinstance(where, Path) else str(where)
        made.append(Opened(browser, url, **context))
        return made[-1]

    yield show
    for one in made:
        one.close()
