"""Progress in a terminal: rich's bars, all tasks of the process below each other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Bars:
    """The bars that are shown now. They appear with the first task and go with the last; lines stay above them."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._rich: Progress | None = None
        self._n_open = 0

    def open(self, label: str, total: float | None, amount: str) -> TaskID:
        """Add a bar."""
        with self._lock:
            if self._rich is None:
                self._rich = self._new()
                self._rich.start()
            self._n_open += 1
            return self._rich.add_task(label, total=total, amount=amount)

    def show(self, bar: TaskID, done: float, amount: str) -> None:
        """Move a bar; ``amount`` says the same in words."""
        if self._rich is not None:
            self._rich.update(bar, completed=done, amount=amount)

    def close(self, bar: TaskID) -> None:
        """Take a bar away."""
        with self._lock:
            if self._rich is None:
                return
            self._rich.remove_task(bar)
            self._n_open -= 1
            if self._n_open == 0:
                self._rich.stop()
                self._rich = None

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        with self._lock:
            console = self._rich.console if self._rich is not None else self._console()
            console.print(line, highlight=False, markup=False)

    def _new(self) -> Progress:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            console=self._console(),
            transient=True,
        )

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=self._stream) if self._stream is not None else Console(stderr=True)
