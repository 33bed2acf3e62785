"""From an event in a worker process to the pixel that shows it, and whether every event arrives.

An event begins with the time that its worker stamps on it, and ends with the first frame in which the graph's cursor stands
on it or behind it: the frame after the painted one, by the browser's wall clock. Both are of one machine.
"""

from __future__ import annotations

import bisect
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from kvlab.store.saved import SavedRun
from kvlab_widgets.bench.browser import READY_MS, Shown, require

WAIT_SECONDS = 20.0
"""For what has been said to be shown."""


class PageProcess:
    """``kvlab inspect RUN --serve`` in a process of its own.

    Attributes
    ----------
    url
        Its address.
    """

    def __init__(self, path: Path, log: Path) -> None:
        program = f"from kvlab.cli import main; main(['inspect', {str(path)!r}, '--serve'])"
        with log.open("wb") as complaints:
            self._process = subprocess.Popen(  # noqa: S603  ourselves
                [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=complaints, text=True
            )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        require(self.url.startswith("http"), f"the page was not served: {log.read_text(encoding='utf-8')[-400:]}")

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        told = psutil.Process(self._process.pid).cpu_times()
        return float(told.user + told.system)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)


@contextmanager
def served(browser: Any, path: Path, log: Path, **context: Any) -> Iterator[tuple[PageProcess, Shown]]:
    """A run on a page, served by a process of its own."""
    process = PageProcess(path, log)
    opened = browser.new_context(**context)
    try:
        page = opened.new_page()
        page.goto(process.url, timeout=READY_MS)
        yield process, Shown(page)
    finally:
        opened.close()
        process.close()


def latencies(shown: Shown, path: Path, first: int) -> list[float]:
    """Milliseconds of each event of the log from number ``first`` + 1 on, as the page recorded them.

    Raises
    ------
    KVLabError
        If one of them was never shown.
    """
    frames: Sequence[tuple[int, float]] = shown.root.evaluate("root => root.kvBench.frames")
    moments, times = zip(*frames, strict=True)
    require(list(moments) == sorted(moments), "the cursor went back while it followed the run")
    found = []
    for seq, time_ns in enumerate(SavedRun(path).events["time_ns"].to_pylist(), start=1):
        if seq > first:
            at = bisect.bisect_left(moments, seq)
            require(at < len(moments), f"event {seq} was never shown", seq=seq)
            found.append(times[at] - time_ns / 1e6)
    return found


def record(shown: Shown) -> None:
    """Note every frame from now on, and no earlier one."""
    shown.root.evaluate("root => { root.kvBench.frames.length = 0; root.kvBench.record = true }")


def lost(shown: Shown, said: int, path: Path) -> int:
    """Events of which the page has no row, of those that were said; rows that differ from the log's count as lost.

    Raises
    ------
    KVLabError
        If the log itself lacks some.
    """
    end = time.monotonic() + WAIT_SECONDS
    # A worker has said its last before the log has it.
    while (table := SavedRun(path).events).num_rows < said and time.monotonic() < end:
        time.sleep(0.1)
    require(table.num_rows >= said, f"{said} events were said, {table.num_rows} are in the log")
    shown.wait_for(table.num_rows, WAIT_SECONDS)
    kinds: list[str] = shown.root.evaluate("""root => { const { kind } = root.kvlab.store.events;
        return Array.from(kind, code => root.kvlab.told.meta.kinds[code]) }""")
    logged = table["kind"].to_pylist()
    return sum(one != other for one, other in zip(logged, kinds, strict=False)) + abs(len(logged) - len(kinds))
