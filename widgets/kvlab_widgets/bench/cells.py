"""What the benchmark's notebook does, in its kernel: runs that a worker tells while a cell computes, and what that takes.

Results are left in a file of the notebook's folder.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from kvlab_widgets.bench.live import SpokenRun, talker

BLOCK = bytes(1 << 20)
LOOP = 4000
"""Turns of a loop after each block: a cell holds the interpreter for some of its time, and releases it for some."""

MEASURED = "measured.json"


class Kernel:
    """What lasts from cell to cell.

    Parameters
    ----------
    n_states, before
        Of each run, and how many of its events are there before it is told on.

    Attributes
    ----------
    run
        The latest run.
    """

    run: SpokenRun

    def __init__(self, n_states: int, before: int) -> None:
        self._opened = ExitStack()
        self._talker = self._opened.enter_context(talker())
        self._n_states, self._before = n_states, before
        began = time.perf_counter()
        _compute(50)
        self._blocks_per_second = 50 / (time.perf_counter() - began)

    def begin(self) -> SpokenRun:
        """Begin another run."""
        self.run = SpokenRun(self._talker, Path("runs"), self._n_states, self._before)
        return self.run

    def busy(self, n_events: int, per_second: float) -> None:
        """Compute while the worker says ``n_events``: as much as fills one core for that time when nothing else runs.

        Writes :data:`MEASURED`: seconds of this process on all its threads, and by the clock, until both are done.
        """
        n_blocks = round(self._blocks_per_second * n_events / per_second)
        cpu, wall = time.process_time(), time.perf_counter()
        said = self.run.say(n_events, per_second)
        _compute(n_blocks)
        n_said = said.result()
        took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        told = {**took, "said": n_said, "path": str(self.run.path.resolve())}
        Path(MEASURED).write_text(json.dumps(told), encoding="utf-8")

    def end(self) -> None:
        """End the run; returns when no inspector follows it any more."""
        self.run.end()
        for thread in threading.enumerate():
            if thread.name == "kvlab-inspector":
                thread.join()

    def close(self) -> None:
        """Stop the worker."""
        self._opened.close()


def _compute(n_blocks: int) -> None:
    for _ in range(n_blocks):
        hashlib.sha256(BLOCK).digest()
        for _ in range(LOOP):
            pass
