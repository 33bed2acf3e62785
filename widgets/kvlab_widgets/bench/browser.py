"""The system's Chromium with software rendering, and an inspector in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvlab.errors import KVLabError, MissingExtra

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--disable-accelerated-2d-canvas", "--disable-dev-shm-usage")
"""Drawn by the CPU, as where there is no GPU; and not in ``/dev/shm``, which is small in containers."""

VIEWPORT = {"width": 1600, "height": 1000}
"""Room for 300 states, on a page as in a cell."""

READY = '[data-kv="inspector"][data-kv-ready="1"]'
READY_MS = 90_000
PROBE = Path(__file__).with_name("probe.js")


def chromium_path() -> str:
    """Where the system's Chromium is.

    Raises
    ------
    MissingExtra
        If there is none on the path.
    """
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise MissingExtra("there is no Chromium on the path", hint="apt-get install chromium", searched=NAMES)
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser.

    Raises
    ------
    MissingExtra
        If Chromium or Playwright is not installed.
    """
    path = chromium_path()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        hint = "pip install playwright (it drives the system's Chromium; its own browsers are not needed)"
        raise MissingExtra("the browser is driven by playwright, which is not installed", hint=hint) from error
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=flags)
        try:
            yield started
        finally:
            started.close()


class Shown:
    """An inspector on a page, with the clocks of ``probe.js`` in it.

    Attributes
    ----------
    page, root
        Playwright's page, and the locator of the inspector's root.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.root = page.locator(READY)
        self.root.wait_for(timeout=READY_MS)
        self.root.evaluate(PROBE.read_text(encoding="utf-8"))

    @property
    def n_events(self) -> int:
        """Events that the page holds."""
        return int(self.root.evaluate("root => root.kvlab.store.n"))

    @property
    def n_visible(self) -> int:
        """States in the window of the graph."""
        told = """root => { const { told, store, k } = root.kvlab, { x_range: x, y_range: y } = told.views.graph.figure;
                  const { nodes: n } = store, end = store.alive("nodes", k);
                  const within = (at, range) => at >= range.start && at <= range.end;
                  return n.x.filter((at, i) => i < end && within(at, x) && within(n.y[i], y)).length }"""
        return int(self.root.evaluate(told))

    def fill(self) -> None:
        """Move on until the window of the graph is full: one more column, and its page turns."""
        told = """root => { const { told, store: { nodes: n } } = root.kvlab, end = told.views.graph.figure.x_range.end - 1.5;
                  return n.born.reduce((last, born, i) => n.x[i] <= end && born > last ? born : last, 0) }"""
        self.move(int(self.root.evaluate(told)))

    def move(self, k: int) -> None:
        """Put the cursor on moment ``k`` and wait until every view shows it."""
        self.root.evaluate("(root, k) => root.kvlab.moveTo(k)", k)
        self.page.wait_for_function(
            "([root, k]) => root.dataset.kvDrawn === String(k)", arg=[self.root.element_handle(), k], timeout=READY_MS
        )

    def wait_for(self, n_events: int, seconds: float) -> int:
        """Wait until the page holds ``n_events``, at most so long; returns how many it holds."""
        told = "([root, n]) => root.kvlab.store.n >= n"
        handle = self.root.element_handle()
        try:
            self.page.wait_for_function(told, arg=[handle, n_events], polling=200, timeout=1e3 * seconds)
        except Exception as error:  # Playwright's own type exists only where it is installed
            if type(error).__name__ != "TimeoutError":
                raise
        return self.n_events


def require(told: bool, message: str, **values: Any) -> None:  # noqa: FBT001  the condition is the subject
    """A benchmark that does not measure what it says has no result.

    Raises
    ------
    KVLabError
        With ``message``, unless ``told``.
    """
    if not told:
        raise KVLabError(message, hint="run it again while nothing else runs", **values)
