"""What kvlab shows while something takes longer than a second.

One interface, four faces: moving bars in a terminal, a bar in a notebook cell, milestone lines where nobody watches (a
pipe, a log), nothing at all. Every face may be used from several threads at once.

    with progress.task("Loading model") as task:
        ...
        task.advance()
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from kvlab.progress_bars import Bars

MILESTONE = 0.25
"""Share of a task of known length after which another line is printed where there are no bars."""

Face = Literal["bars", "cell", "lines", "nothing"]


class Task:
    """Something that is going on. ``show(done, amount)`` is called whenever more of it is done."""

    def __init__(self, total: float | None, unit: str, show: Callable[[float, str], None]) -> None:
        self.total = total
        self.done = 0.0
        self._unit = unit
        self._show = show

    def advance(self, amount: float = 1) -> None:
        """Say that ``amount`` more of the total is done."""
        self.reach(self.done + amount)

    def reach(self, done: float) -> None:
        """Say how much of the total is done in all."""
        self.done = done
        self._show(done, amount_in_words(done, self.total, self._unit))


class Progress:
    """Shows tasks as they go on.

    Parameters
    ----------
    face
        How; None chooses by where the output goes, each time.
    stream
        Where to write; standard error by default, so that a command's output stays clean.
    """

    def __init__(self, face: Face | None = None, stream: TextIO | None = None) -> None:
        self._face = face
        self._stream = stream
        self._lock = threading.Lock()
        self._bars: Bars | None = None

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        """Show a task until the block ends, and then how long it took, or that it was stopped.

        Parameters
        ----------
        label
            What is going on, as a person would say it: ``"Loading model"``.
        total
            How much there is to do, in ``unit``; None if nobody knows.
        unit
            ``"B"`` for bytes, or a plural noun.
        """
        show, end = self._opened(label, total, unit)
        started = time.monotonic()
        outcome = "stopped after"
        try:
            yield Task(total, unit, show)
            outcome = "done in"
        finally:
            end(f"{label}: {outcome} {time.monotonic() - started:.1f} s")

    def say(self, line: str) -> None:
        """Print one line, above any bars."""
        face = self._face or fitting_face(self._stream)
        if face == "bars":
            self._shared_bars().say(line)
        elif face != "nothing":
            stream = self._stream or (sys.stdout if face == "cell" else sys.stderr)
            with self._lock:
                stream.write(f"{line}\n")
                stream.flush()

    def _opened(
        self, label: str, total: float | None, unit: str
    ) -> tuple[Callable[[float, str], None], Callable[[str], None]]:
        """What to call when more is done, and what to call with the last line."""
        face = self._face or fitting_face(self._stream)
        if face == "nothing":
            return lambda _done, _amount: None, lambda _line: None
        if face == "cell":
            from kvlab.progress_cell import CellTask

            cell = CellTask(label, total)
            return cell.show, cell.end
        if face == "bars":
            bars = self._shared_bars()
            bar = bars.open(label, total, amount_in_words(0, total, unit))

            def end(line: str) -> None:
                bars.close(bar)
                bars.say(line)

            return lambda done, amount: bars.show(bar, done, amount), end
        self.say(f"{label} …")
        return _milestones(label, total, self.say), self.say

    def _shared_bars(self) -> Bars:
        from kvlab.progress_bars import Bars

        with self._lock:
            if self._bars is None:
                self._bars = Bars(self._stream)
            return self._bars


def _milestones(label: str, total: float | None, say: Callable[[str], None]) -> Callable[[float, str], None]:
    said = 0

    def show(done: float, amount: str) -> None:
        nonlocal said
        reached = int(done / total / MILESTONE) if total else 0
        if reached > said and total and done < total:
            said = reached
            say(f"{label}: {amount}")

    return show


def fitting_face(stream: TextIO | None) -> Face:
    """How to show progress on ``stream``, or by default: in a cell, on a terminal, or in a log."""
    if stream is None and _in_notebook():
        return "cell"
    return "bars" if (stream or sys.stderr).isatty() else "lines"


def amount_in_words(done: float, total: float | None, unit: str) -> str:
    """``"30 of 100 tokens"``; bytes as megabytes; nothing while nothing can be said."""
    if unit == "B":
        return f"{done / 1e6:.0f} MB" if total is None else f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
    if total is None:
        return f"{done:g} {unit}".rstrip() if done else ""
    return f"{done:g} of {total:g} {unit}".rstrip()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


SHOWN = Progress()
"""The one everybody shares, so that bars of different parts stand below each other."""

SILENT = Progress("nothing")

task = SHOWN.task
say = SHOWN.say
