"""What kvlab shows while something takes longer than a second.

One interface, three faces: moving bars in a terminal or a notebook cell, milestone lines where nobody watches (a pipe,
a log), nothing at all. Every face may be used from several threads at once.

    with progress.task("Loading model") as task:
        ...
        task.advance()
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

MILESTONE = 0.25
"""Share of a task of known length after which another line is printed where there are no bars."""

Face = Literal["bars", "lines", "nothing"]


class Task(Protocol):
    """Something that is going on."""

    def advance(self, amount: float = 1) -> None:
        """Say that ``amount`` more of the total is done."""

    def reach(self, done: float) -> None:
        """Say how much of the total is done in all."""


class Progress:
    """Shows tasks as they go on.

    Parameters
    ----------
    face
        ``"bars"``, ``"lines"`` or ``"nothing"``; None chooses by where the output goes.
    stream
        Where to write; standard error by default, so that a command's output stays clean.
    """

    def __init__(self, face: Face | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._face = face
        self._lock = threading.RLock()
        self._bars: RichProgress | None = None
        self._open = 0

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        """Show a task until the block ends, and then how long it took, or that it failed.

        Parameters
        ----------
        label
            What is going on, as a person would say it: ``"Loading model"``.
        total
            How much there is to do, in ``unit``; None if nobody knows.
        unit
            ``"B"`` for bytes, or a plural noun.
        """
        started = time.monotonic()
        face = self._face or _fitting_face(self._stream)
        if face == "bars":
            with self._bar(label, total, unit) as bar:
                yield bar
            self.say(f"{label}: done in {time.monotonic() - started:.1f} s")
            return
        line = _Line(self, label, total, unit) if face == "lines" else _Nothing()
        if face == "lines":
            self.say(f"{label} …")
        try:
            yield line
        except BaseException:
            if face == "lines":
                self.say(f"{label}: stopped after {time.monotonic() - started:.1f} s")
            raise
        if face == "lines":
            self.say(f"{label}: done in {time.monotonic() - started:.1f} s")

    def say(self, line: str) -> None:
        """Print one line, above any bars."""
        with self._lock:
            face = self._face or _fitting_face(self._stream)
            if self._bars is not None:
                self._bars.console.print(line, highlight=False, markup=False)
            elif face == "bars":
                _console(self._stream).print(line, highlight=False, markup=False)
            elif face == "lines":
                print(line, file=self._stream or sys.stderr, flush=True)

    @contextmanager
    def _bar(self, label: str, total: float | None, unit: str) -> Iterator[Task]:
        with self._lock:
            if self._bars is None:
                self._bars = _rich_progress(self._stream)
                self._bars.start()
            self._open += 1
            bars = self._bars
            row = bars.add_task(label, total=total, amount=_amount(0, total, unit))
        try:
            yield _Bar(bars, row, total, unit)
        finally:
            with self._lock:
                bars.remove_task(row)
                self._open -= 1
                if self._open == 0:
                    bars.stop()
                    self._bars = None


class _Bar:
    def __init__(self, bars: RichProgress, row: int, total: float | None, unit: str) -> None:
        self._bars, self._row, self._total, self._unit = bars, row, total, unit
        self._done = 0.0

    def advance(self, amount: float = 1) -> None:
        self.reach(self._done + amount)

    def reach(self, done: float) -> None:
        self._done = done
        self._bars.update(self._row, completed=done, amount=_amount(done, self._total, self._unit))  # type: ignore[arg-type]


class _Line:
    def __init__(self, progress: Progress, label: str, total: float | None, unit: str) -> None:
        self._progress, self._label, self._total, self._unit = progress, label, total, unit
        self._done, self._said = 0.0, 0

    def advance(self, amount: float = 1) -> None:
        self.reach(self._done + amount)

    def reach(self, done: float) -> None:
        self._done = done
        if not self._total:
            return
        milestone = int(min(done / self._total, 1) / MILESTONE)
        if milestone > self._said and done < self._total:
            self._said = milestone
            self._progress.say(f"{self._label}: {_amount(done, self._total, self._unit)}")


class _Nothing:
    def advance(self, amount: float = 1) -> None:
        pass

    def reach(self, done: float) -> None:
        pass


def _fitting_face(stream: TextIO | None) -> Face:
    if stream is None and _in_notebook():
        # Without ipywidgets rich only warns, cell after cell.
        return "bars" if find_spec("ipywidgets") else "lines"
    return "bars" if (stream or sys.stderr).isatty() else "lines"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _console(stream: TextIO | None) -> Console:
    from rich.console import Console

    return Console(file=stream) if stream is not None else Console(stderr=not _in_notebook())


def _rich_progress(stream: TextIO | None) -> RichProgress:
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Rich

    return Rich(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        console=_console(stream),
        transient=True,
    )


def _amount(done: float, total: float | None, unit: str) -> str:
    if unit == "B":
        shown, whole = f"{done / 1e6:.0f}", "" if total is None else f" of {total / 1e6:.0f}"
        return f"{shown}{whole} MB"
    if total is None:
        return f"{done:g} {unit}".rstrip() if done else ""
    return f"{done:g} of {total:g} {unit}".rstrip()


SHOWN = Progress()
"""The one everybody shares, so that bars of different parts stand below each other."""

SILENT = Progress("nothing")

task = SHOWN.task
say = SHOWN.say
