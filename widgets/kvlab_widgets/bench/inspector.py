"""``kvlab bench inspector``: how fast the inspector steps, follows and opens, and what that costs the side that serves it.

Everything is measured on a generated run of 10,000 states, on a page that ``kvlab inspect --serve`` serves and in a cell of
a real JupyterLab, in the system's Chromium without a GPU. Method of each figure: see the module that measures it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvlab.bench.summary import Metric, environment, measured, median_of, summary, write_summary
from kvlab.progress import SHOWN, Progress
from kvlab.store.runs import RunFolder, new_run_folder
from kvlab_widgets.bench.arriving import WAIT_SECONDS, latencies, lost, record, served
from kvlab_widgets.bench.browser import READY_MS, VIEWPORT, Shown, chromium, require
from kvlab_widgets.bench.cells import MEASURED
from kvlab_widgets.bench.generated import make_events, write_run
from kvlab_widgets.bench.jupyter import Notebook, notebook
from kvlab_widgets.bench.live import SpokenRun, talker
from kvlab_widgets.bench.sizes import layout, page_file, sending
from kvlab_widgets.bench.stepping import p95, steps

Metrics = dict[str, Metric]

SLOW, FAST = 60.0, 1000.0
"""Events a second: as a busy lab says them, and more than any lab does."""

KERNEL, SHOW_SAVED, BEGIN, SHOW, BUSY, END, CLOSE = range(7)
"""Cells of the notebook."""

STATIC = 'iframe[title="kvlab inspector"]'
"""What stands in a cell once its run is over."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    states
        Of the run.
    runs, presses
        Places where keys are pressed, and how often in each.
    rounds
        Repetitions of everything else, and pairs of the kernel's overhead.
    slow_events, fast_events
        Events that are told at :data:`SLOW` and :data:`FAST` a second.
    page_events
        Of the run that is exported.
    page_states, cell_states
        In the window at least.
    """

    states: int = 10_000
    runs: int = 5
    presses: int = 120
    rounds: int = 5
    slow_events: int = 600
    fast_events: int = 12_000
    page_events: int = 10_000
    page_states: int = 300
    cell_states: int = 300


QUICK = Sizes(states=1_500, runs=2, presses=16, rounds=1, slow_events=120, fast_events=2_000, page_events=2_000)


def run(
    out: Path,
    quick: bool = False,  # noqa: FBT001, FBT002  the command's own flag
    progress: Progress = SHOWN,
) -> dict[str, Any]:
    """Measure everything, write ``out/summary.json`` and return it.

    Parameters
    ----------
    quick
        A small run, each once: to see that it works, not to cite.
    progress
        Shows what is being done.

    Raises
    ------
    MissingExtra
        If Chromium or Playwright is not installed.
    KVLabError
        If something was not shown, so that it could not be measured.
    """
    sizes, began = QUICK if quick else Sizes(), time.perf_counter()
    metrics: Metrics = {}
    with tempfile.TemporaryDirectory(prefix="kvlab-bench-") as name, chromium() as browser:
        folder = Path(name)
        with progress.task("Placing and packing"):
            events = make_events(sizes.states)
            metrics |= layout(events, sizes.rounds) | sending(events, sizes.rounds)
        with progress.task("Opening the exported page"):
            saved = write_run(folder, events[: sizes.page_events])
            metrics |= page_file(browser, saved, folder / "run.html", sizes.rounds)
        # Its log stays open, so that it is shown as a run that goes on.
        going_on = new_run_folder("generated", root=folder)
        going_on.log.append(events)
        going_on.log.flush()
        with progress.task(f"Stepping on a page, {sizes.runs} times {sizes.presses} keys"):
            metrics |= _stepping_on_a_page(browser, going_on.path, folder / "log", sizes)
        with progress.task("Following on a page"):
            metrics |= _following_on_a_page(browser, folder, sizes)
        with progress.task("JupyterLab: stepping, following, overhead"):
            metrics |= _in_jupyterlab(browser, folder, going_on, sizes)
        where = environment(
            chromium=browser.version,
            viewport=[VIEWPORT["width"], VIEWPORT["height"]],
            more_versions={name: version(name) for name in ("bokeh", "panel", "jupyterlab", "playwright")},
            sizes=asdict(sizes),
            seconds=time.perf_counter() - began,
        )
    record = summary("inspector", metrics, where)
    write_summary(out, record)
    return record


def _stepping_on_a_page(browser: Any, path: Path, log: Path, sizes: Sizes) -> Metrics:
    with served(browser, path, log, viewport=VIEWPORT) as (_, shown):
        found = steps(shown, sizes.runs, sizes.presses, sizes.page_states)
        visible = shown.n_visible
    return {**found.metrics("page"), "visible_states@page": measured(visible, "states")}


def _following_on_a_page(browser: Any, folder: Path, sizes: Sizes) -> Metrics:
    before = len(make_events(sizes.states)) - sizes.rounds * sizes.slow_events
    late, cpu = [], []
    with talker() as speaking:
        # More states than asked for, so that there is something to tell at the fast pace too: a state is 8 events and more.
        states = sizes.states + sizes.fast_events // 6
        run = SpokenRun(speaking, folder, states, before)
        with served(browser, run.path, folder / "log", viewport=VIEWPORT) as (process, shown):
            for _ in range(sizes.rounds):
                shown.wait_for(run.said, WAIT_SECONDS)
                record(shown)
                first, used, began = run.said, process.cpu_seconds(), time.perf_counter()
                _until_done(shown, run.say(sizes.slow_events, SLOW))
                cpu.append((process.cpu_seconds() - used) / (time.perf_counter() - began))
                _all_shown(shown, run.said)
                late.append(latencies(shown, run.path, first))
            _until_done(shown, run.say(sizes.fast_events, FAST))
            gone = lost(shown, run.said, run.path)
        run.end()
    return {
        "worker_to_pixel_ms_p95@page": median_of([p95(one) for one in late], "ms"),
        "worker_to_pixel_ms_p50@page": median_of([sorted(one)[len(one) // 2] for one in late], "ms"),
        "server_cpu_fraction@page": median_of(cpu, "×"),
        "lost_events": measured(gone, "events"),
        "told_events": measured(sizes.fast_events, "events"),
    }


def _until_done(shown: Shown, future: Any) -> None:
    """Wait for what a worker does; the browser's own messages are heard meanwhile."""
    while not future.done():
        shown.page.wait_for_timeout(50)
    future.result()


def _all_shown(shown: Shown, n_events: int) -> None:
    held = shown.wait_for(n_events, WAIT_SECONDS)
    require(held >= n_events, f"{n_events} events were told, {held} are on the page", n_events=n_events, held=held)
    shown.page.wait_for_timeout(300)


def _in_jupyterlab(browser: Any, folder: Path, going_on: RunFolder, sizes: Sizes) -> Metrics:
    home = folder / "home"
    home.mkdir()
    before = len(make_events(sizes.states)) - sizes.slow_events
    cells = [""] * (CLOSE + 1)
    cells[KERNEL] = (
        "import kvlab, kvlab_widgets\nfrom kvlab_widgets.bench.cells import Kernel\n"
        f"kernel = Kernel({sizes.states}, {before})"
    )
    cells[SHOW_SAVED] = f"kvlab_widgets.inspect(kvlab.open_run({str(going_on.path)!r}))"
    cells[BEGIN] = "run = kernel.begin()"
    cells[SHOW] = "kvlab_widgets.inspect(run)"
    cells[BUSY] = f"kernel.busy({sizes.slow_events}, {SLOW})"
    cells[END] = "kernel.end()"
    cells[CLOSE] = "kernel.close()"
    with notebook(browser, home, cells) as book:
        book.run(KERNEL)
        book.run(SHOW_SAVED)
        shown = Shown(book.page)
        found = steps(shown, sizes.runs, sizes.presses, sizes.cell_states)
        visible = shown.n_visible
        # Its inspector ends with it: no other thread is at work in the kernel from now on.
        going_on.complete()
        book.page.wait_for_selector(STATIC, timeout=READY_MS)
        _forget(book, SHOW_SAVED)
        late, bare, open_ = [], [], []
        for number in range(sizes.rounds):
            # Who begins changes.
            for attached in (False, True) if number % 2 else (True, False):
                with _begun(book, attached=attached) as inspector:
                    book.run(BUSY, wait=False)
                    book.wait(BUSY)
                    told = json.loads((home / MEASURED).read_text(encoding="utf-8"))
                    if inspector is None:
                        bare.append(told)
                        continue
                    _all_shown(inspector, before + sizes.slow_events)
                    late.append(latencies(inspector, Path(told["path"]), before))
                    open_.append(told)
        book.run(CLOSE)
    return {
        **found.metrics("lab"),
        "visible_states@lab": measured(visible, "states"),
        "worker_to_pixel_ms_p95@lab": median_of([p95(one) for one in late], "ms"),
        "worker_to_pixel_ms_p50@lab": median_of([sorted(one)[len(one) // 2] for one in late], "ms"),
        "kernel_overhead_fraction": _overhead(open_, bare, "cpu"),
        "cell_overhead_fraction": _overhead(open_, bare, "wall"),
    }


@contextmanager
def _begun(book: Notebook, *, attached: bool) -> Iterator[Shown | None]:
    """A new run in the notebook, with an inspector on it or without."""
    book.run(BEGIN)
    shown = None
    if attached:
        book.run(SHOW)
        shown = Shown(book.page)
        record(shown)
    yield shown
    book.run(END)
    _forget(book, SHOW)


def _forget(book: Notebook, index: int) -> None:
    """Take away what a cell shows."""
    book.page.evaluate(
        """i => { const book = jupyterapp.shell.currentWidget; book.content.activeCellIndex = i; book.content.deselectAll();
                  return jupyterapp.commands.execute('notebook:clear-cell-output').then(() => 1) }""",
        index,
    )


def _overhead(with_it: list[dict[str, float]], without: list[dict[str, float]], what: str) -> Metric:
    """Median of the pairs' ratios, less one."""
    return median_of([a[what] / b[what] - 1 for a, b in zip(with_it, without, strict=True)], "×")
