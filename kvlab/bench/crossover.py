"""Where moving a state beats computing it again: every road really taken, over links slower and faster than the break-even.

States lie on one worker, and their edges go to the other: moved whole, computed again, half of each, and as kvlab decides.
The links are paced by the sender, which sends real frames, or, as root, shaped by the kernel between two hosts made of
network namespaces (:mod:`kvlab.bench.crossover_links`). Each cell is a length of context, a link and a number of edges at
once; the arms of all links are run in turn (:mod:`kvlab.bench.crossover_rounds`), and the median of the rounds counts.
The time is that of a person: from asking for all answers to having the first token of each.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvlab.bench.crossover_links import Link, Taken, paced, shaped
from kvlab.bench.crossover_rounds import Took, round_of
from kvlab.bench.namespaces import why_not
from kvlab.bench.summary import Metric, environment, measured, summary, write_summary
from kvlab.errors import InvalidInput
from kvlab.progress import Progress
from kvlab.runtime.lab import Lab

Say = Callable[[str], None]

ARMS = ("transfer", "recompute", "hybrid", "ours")
FIXED = ("transfer", "recompute")
CELLS_FILE = "cells.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: lengths of contexts, links as multiples of the break-even rate (None: not paced), edges at once."""

    contexts: tuple[int, ...]
    links: tuple[float | None, ...]
    edges: tuple[int, ...]
    rounds: int


WHOLE = Plan((128, 512, 2048), (0.25, 1.0, 4.0, None), (1, 8), 5)
QUICK = Plan((128, 512), (0.25, 1.0, 4.0, None), (1, 8), 3)


@dataclass(slots=True)
class Arm:
    """Seconds of one arm in each round: measured, and as predicted when it was decided."""

    seconds: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    roads: list[dict[str, int]] = field(default_factory=list)

    def add(self, taken: Taken) -> None:
        """One round more."""
        self.seconds.append(taken.seconds)
        self.predicted.append(taken.predicted)
        self.roads.append(taken.roads)

    @property
    def median(self) -> float:
        """Of the measured seconds."""
        return statistics.median(self.seconds)

    @property
    def interval(self) -> tuple[float, float]:
        """Smallest and largest: for five rounds 94% confidence of the median."""
        return min(self.seconds), max(self.seconds)


@dataclass(slots=True)
class Cell:
    """One context length over one link with so many edges at once; ``cost`` is what the lab had calibrated."""

    n_tokens: int
    link: float | None
    n_edges: int
    rate_bits: float | None
    cost: dict[str, Any] = field(default_factory=dict)
    arms: dict[str, Arm] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The arm with the smallest median."""
        return min(self.arms, key=lambda arm: self.arms[arm].median)

    @property
    def chosen(self) -> str:
        """Which arm kvlab's decision is: itself, where several edges were decided, else the road it took every time."""
        roads = {road for taken in self.arms["ours"].roads for road in taken}
        (only,) = roads if len(roads) == 1 else ("ours",)
        return only if only in self.arms and self.n_edges == 1 else "ours"

    @property
    def tied(self) -> bool:
        """Whether the interval of the arm that was chosen overlaps that of the best one."""
        (low, high), (best_low, best_high) = self.arms[self.chosen].interval, self.arms[self.best].interval
        return low <= best_high and best_low <= high

    @property
    def apart(self) -> int:
        """Of the two other roads, how many are apart from the best one: their intervals do not overlap its own.

        None: whatever is chosen here cannot be told from any other choice.
        """
        roads = sorted((self.arms[name] for name in ARMS if name != "ours"), key=lambda arm: arm.median)
        return sum(roads[0].interval[1] < other.interval[0] for other in roads[1:])

    @property
    def regret(self) -> float:
        """(chosen − best) / best of the medians."""
        return self.arms[self.chosen].median / self.arms[self.best].median - 1


def run(
    out: Path,
    model: str,
    quick: bool = False,  # noqa: FBT001, FBT002  the command's own flag
    shape: bool = False,  # noqa: FBT001, FBT002  the command's own flag
    say: Say = print,
) -> dict[str, Any]:
    """Measure all cells, write ``out/summary.json`` and ``out/cells.json`` (every round), and return the summary.

    Raises
    ------
    InvalidInput
        If shaped links are asked for where there can be none.
    """
    if shape and why_not("tbf"):
        raise InvalidInput(f"links cannot be shaped here: {why_not('tbf')}", hint="without --shaped they are paced")
    plan, began = (QUICK if quick else WHOLE), time.perf_counter()
    even = _break_even(model, max(plan.contexts), say)
    rates = {link: even * link if link is not None else None for link in plan.links}
    cells: list[Cell] = []
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        links = {link: opened.enter_context((shaped if shape else paced)(model, rate)) for link, rate in rates.items()}
        for cell in _cells(links, plan, rates, say):
            cells.append(cell)
            told = json.dumps([_told(one) for one in cells], indent=1)
            (out / CELLS_FILE).write_text(told + "\n", encoding="utf-8")
    where = environment(
        model=model,
        links="shaped by tc between network namespaces" if shape else "paced by the sender",
        break_even_bits_per_second=even,
        rounds=plan.rounds,
        workers="one sends, one answers, each with all cores while the other is idle",
        seconds=time.perf_counter() - began,
    )
    record = summary("crossover", metrics_of(cells), where)
    write_summary(out, record)
    return record


def metrics_of(cells: Sequence[Cell]) -> dict[str, Metric]:
    """The figures of all cells.

    ``mean_regret`` counts a tie as none, ``mean_regret_with_noise`` counts every difference of medians, and
    ``mean_regret_without_ties`` is the mean over the cells where the chosen arm and the best one are apart. A cell is
    *separated* if a wrong choice would show: the best road is apart from at least one other.
    """
    regrets = [cell.regret for cell in cells]
    without_ties = [0.0 if cell.tied else cell.regret for cell in cells]
    apart = [cell.regret for cell in cells if not cell.tied]
    errors = [
        abs(predicted / seconds - 1)
        for cell in cells
        for arm in cell.arms.values()
        for predicted, seconds in [(statistics.median(arm.predicted), arm.median)]
    ]
    ours = sum(cell.arms["ours"].median for cell in cells)
    fixed = {name: sum(cell.arms[name].median for cell in cells) for name in FIXED}
    gains = [cell.arms["recompute"].median / cell.arms["transfer"].median for cell in cells]
    found = {
        "mean_regret": _mean(without_ties),
        "mean_regret_with_noise": _mean(regrets),
        "mean_regret_without_ties": _mean(apart or [0.0]),
        "cells_separated": measured(sum(cell.apart > 0 for cell in cells) / len(cells), "of 1"),
        "cells_with_one_best_road": measured(sum(cell.apart == len(ARMS) - 2 for cell in cells) / len(cells), "of 1"),
        "prediction_mape": _mean(errors),
        "ours_over_best_fixed_policy": measured(ours / min(fixed.values()), "×"),
        "transfer_gain_max": Metric(max(gains), "×", "measured", len(gains), min(gains), max(gains)),
    }
    longest = max(cell.n_tokens for cell in cells)
    for cell in cells:
        if (cell.n_tokens, cell.link, cell.n_edges) == (longest, 1.0, 1):
            pure = min(cell.arms[name].median for name in FIXED)
            found["hybrid_gain_at_breakeven"] = measured(pure / cell.arms["hybrid"].median, "×")
    return found


def _break_even(model: str, n_tokens: int, say: Say) -> float:
    """The rate at which ``n_tokens`` tokens arrive just when they would be computed, in bit/s, freshly calibrated."""
    say("calibrating")
    quiet = Progress("nothing")
    with Lab(model=model, workers=2, same_host="frames", security=False, calibrate=True, progress=quiet) as lab:
        return 8 * lab.core.cost.break_even_bytes_per_second(n_tokens, lab.core.config.bytes_per_token)


def _cells(
    links: Mapping[float | None, Link], plan: Plan, rates: Mapping[float | None, float | None], say: Say
) -> Iterator[Cell]:
    for n_tokens in plan.contexts:
        with tempfile.TemporaryDirectory(prefix="kvlab-crossover-") as folder:
            costs = {name: link.prepare(n_tokens, max(plan.edges), folder) for name, link in links.items()}
        took: Took = {}
        for n_edges in plan.edges:
            arms = {name: {arm: Arm() for arm in ARMS} for name in links}
            for number in range(plan.rounds):
                for name, how, taken in round_of(links, n_edges, number, took):
                    arms[name][how].add(taken)
                told = [((name, how), arm.seconds) for name, of in arms.items() for how, arm in of.items()]
                took = {arm: [one / n_edges for one in seconds] for arm, seconds in told}
            for name, measured_arms in arms.items():
                cell = Cell(n_tokens, name, n_edges, rates[name], costs[name], measured_arms)
                over = "as fast as it goes" if cell.rate_bits is None else f"{cell.rate_bits / 1e6:.0f} Mbit/s"
                medians = ", ".join(f"{how} {arm.median:.2f}" for how, arm in cell.arms.items())
                say(f"{n_tokens} tokens, {over}, {n_edges} at once: {medians} s; chosen {cell.chosen}")
                yield cell


def _mean(values: Sequence[float]) -> Metric:
    return Metric(statistics.fmean(values), "of 1", "measured", len(values), min(values), max(values))


def _told(cell: Cell) -> dict[str, Any]:
    figures = {"best": cell.best, "chosen": cell.chosen, "regret": cell.regret, "tied": cell.tied}
    return {**asdict(cell), **figures, "apart": cell.apart}
