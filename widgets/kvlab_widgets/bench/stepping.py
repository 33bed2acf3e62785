"""From a key press to the painted frame.

Keys are real ones, sent through the browser's own input. A press begins at its event's time stamp and ends when the frame
after the painted one begins (``probe.js``): for the graph and the bar once the graph has painted, for all charts once
those that wait for quiet have. Steps in which nothing of the graph is new are left out of the graph's figures. The floor
beside it is a page that changes one text. ``presented`` is what the browser itself tells of the same presses (Event
Timing, https://www.w3.org/TR/event-timing): to the frame after the handlers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvlab.bench.summary import Metric, median_of
from kvlab_widgets.bench.browser import Shown, require

FLOOR_KEY = "F9"
"""No key of an inspector or of JupyterLab."""

KEYS = ("]", "ArrowRight", "ArrowRight", "ArrowRight", "]", "]", "ArrowLeft", "[")
UNTOLD_MS = 16.0
"""Shorter events are not told by Event Timing."""


@dataclass(slots=True)
class Steps:
    """The 95th percentiles in ms of every run."""

    graph: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    presented: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)

    def metrics(self, where: str) -> dict[str, Metric]:
        """The figures, named with ``where`` they were measured."""
        return {
            f"graph_step_ms_p95@{where}": median_of(self.graph, "ms"),
            f"graph_step_ms_p50@{where}": median_of(self.medians, "ms"),
            f"all_step_ms_p95@{where}": median_of(self.all, "ms"),
            f"presented_ms_p95@{where}": median_of(self.presented, "ms"),
            f"floor_ms_p95@{where}": median_of(self.floor, "ms"),
        }


def p95(values: Sequence[float]) -> float:
    """The 95th percentile: the smallest value that at least 95% do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]


def steps(shown: Shown, runs: int, presses: int, visible: int) -> Steps:
    """Press keys in ``runs`` places of the run, ``presses`` times each.

    Raises
    ------
    KVLabError
        If fewer than ``visible`` states are in the window, or a press was not shown.
    """
    found, n = Steps(), shown.n_events
    for number in range(runs):
        shown.move(n * (number + 4) // (runs + 4))
        shown.fill()
        require(
            shown.n_visible >= visible, f"only {shown.n_visible} states are in the window, not {visible}", asked=visible
        )
        shown.root.focus()
        told = _pressed(shown, [KEYS[i % len(KEYS)] for i in range(presses)])
        every = [taken for _, _, taken in told["steps"]]
        graph = [taken for taken, painted, _ in told["steps"] if painted]
        require(2 * len(graph) >= presses, f"the graph was painted in {len(graph)} of {presses} steps only")
        found.graph.append(p95(graph))
        found.medians.append(statistics.median(graph))
        found.all.append(p95(every))
        untold = [UNTOLD_MS] * (presses - len(told["presented"]))
        found.presented.append(p95([*told["presented"], *untold]))
        found.floor.append(p95(_pressed(shown, [FLOOR_KEY] * presses)["floor"]))
    return found


def _pressed(shown: Shown, keys: Sequence[str]) -> dict[str, Any]:
    shown.root.evaluate("root => { for (const name of ['steps', 'presented', 'floor']) root.kvBench[name].length = 0 }")
    for key in keys:
        shown.page.keyboard.press(key)
        shown.root.evaluate("root => root.kvBench.idle")
    # Event Timing tells in its own time.
    shown.page.wait_for_timeout(300)
    found: dict[str, Any] = shown.root.evaluate(
        "root => { const { steps, presented, floor } = root.kvBench; return { steps, presented, floor } }"
    )
    measured = len(found["steps"]) + len(found["floor"])
    require(measured == len(keys), f"{len(keys)} keys were pressed, {measured} were seen", keys=len(keys))
    return found
