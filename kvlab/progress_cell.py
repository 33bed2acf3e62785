"""Progress in a notebook cell: one output a task, updated in place, plain HTML that a saved notebook keeps."""

from __future__ import annotations

import time
from html import escape
from typing import Any

SECONDS_BETWEEN_UPDATES = 0.2
"""A cell that is updated for every step of a fast loop would slow the loop and the page."""


class CellTask:
    """A task shown in the cell that started it. ``shown`` says how much is done, in words."""

    def __init__(self, label: str, total: float | None) -> None:
        from IPython.display import display

        self._label, self._total = label, total
        self._updated = time.monotonic()
        self._handle: Any = display(self._bundle(0, "…"), raw=True, display_id=True)

    def show(self, done: float, amount: str) -> None:
        """Update the bar, unless it was updated a moment ago."""
        now = time.monotonic()
        if now - self._updated >= SECONDS_BETWEEN_UPDATES:
            self._updated = now
            self._handle.update(self._bundle(done, amount), raw=True)

    def end(self, line: str) -> None:
        """Put ``line`` where the bar was."""
        self._handle.update({"text/plain": line, "text/html": f"<div>{escape(line)}</div>"}, raw=True)

    def _bundle(self, done: float, amount: str) -> dict[str, str]:
        # Without a value, browsers draw a progress element that moves to and fro.
        value = "" if self._total is None else f' value="{done:g}" max="{self._total:g}"'
        line = f"{self._label} {amount}"
        return {
            "text/plain": line,
            "text/html": f"<div>{escape(self._label)} <progress{value}></progress> {escape(amount)}</div>",
        }
