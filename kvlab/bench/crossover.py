"""Where moving a state beats computing it again: every road really taken, over links slower and faster than the break-even.

States lie on one worker, and their edges go to the other: moved whole, computed again, half of each, and as kvlab decides.
The links are paced by the sender, which sends real frames, or, as root, shaped by the kernel between two hosts made of
network namespaces (:mod:`kvlab.bench.testbed`); each rate is a lab of its own. Each cell is a length of context,
a link and a number of edges at once; its arms are run in turn, who goes first changes, and the median of the rounds counts.
The time is that of a person: from asking for all answers to having the first token of each.
"""

from __future__ import annotations

import itertools
import json
import os
import pydoc_data.topics
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvlab.bench.namespaces import HUB, TestBed, why_not
from kvlab.bench.summary import Metric, environment, measured, summary, write_summary
from kvlab.bench.testbed import Cluster
from kvlab.config import CACHE_VARIABLE
from kvlab.errors import ClusterError, InvalidInput
from kvlab.progress import Progress
from kvlab.runtime.handles import Generation, KVState
from kvlab.runtime.lab import Lab
from kvlab.state.tokens import BYTES_PER_ID

Say = Callable[[str], None]

ARMS = ("transfer", "recompute", "hybrid", "ours")
FIXED = ("transfer", "recompute")
SOURCE, TARGET = "worker-0", "worker-1"
SUFFIX = " In one word:"
LATENCY_SECONDS = 0.001
KV_BUDGET = "6 GiB"
FASTEST = "10gbit"
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
    shaped: bool = False,  # noqa: FBT001, FBT002  the command's own flag
    say: Say = print,
) -> dict[str, Any]:
    """Measure all cells, write ``out/summary.json`` and ``out/cells.json`` (every round), and return the summary.

    Raises
    ------
    InvalidInput
        If shaped links are asked for where there can be none.
    """
    if shaped and why_not("tbf"):
        raise InvalidInput(f"links cannot be shaped here: {why_not('tbf')}", hint="without --shaped they are paced")
    over_link = _over_shaped_link if shaped else _over_paced_link
    plan, began = (QUICK if quick else WHOLE), time.perf_counter()
    even = _break_even(model, max(plan.contexts), say)
    cells: list[Cell] = []
    for link in plan.links:
        out.mkdir(parents=True, exist_ok=True)
        cells += over_link(model, plan, link, even, say)
        (out / CELLS_FILE).write_text(json.dumps([_told(cell) for cell in cells], indent=1) + "\n", encoding="utf-8")
    where = environment(
        model=model,
        links="shaped by tc between network namespaces" if shaped else "paced by the sender",
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
    with Lab(model=model, workers=2, same_host="frames", calibrate=True, progress=Progress("nothing")) as lab:
        return 8 * lab.core.cost.break_even_bytes_per_second(n_tokens, lab.core.config.bytes_per_token)


def _over_paced_link(model: str, plan: Plan, link: float | None, even: float, say: Say) -> Iterator[Cell]:
    rate = even * link if link is not None else None
    with Lab(
        model=model,
        workers=2,
        same_host="frames",
        kv_budget=KV_BUDGET,
        link_rate=rate,
        link_latency=LATENCY_SECONDS if rate is not None else None,
        progress=Progress("nothing"),
    ) as lab:
        yield from _cells(lab, plan, link, rate, say)


def _over_shaped_link(model: str, plan: Plan, link: float | None, even: float, say: Say) -> Iterator[Cell]:
    """A bed for this rate; the client that runs the cells has to be inside of it, in a process of its own."""
    from kvlab.engine.models import resolve

    rate = even * link if link is not None else None
    folder = resolve(model, Progress("nothing"))
    with (
        tempfile.TemporaryDirectory(prefix="kvlab-crossover-") as work,
        TestBed(2, f"{rate:.0f}bit" if rate is not None else FASTEST) as bed,
    ):
        cluster = Cluster(bed, Path(work))
        for host, name in zip(bed.hosts, (SOURCE, TARGET), strict=True):
            cluster.worker(host, folder, "frames", name=name)
        asked = {"plan": asdict(plan), "link": link, "rate": rate, "model": str(folder), "address": cluster.address}
        # What is measured of these links must not be taken for this machine's own.
        settings = os.environ | {CACHE_VARIABLE: str(Path(work) / "cache")}
        line = [sys.executable, "-m", "kvlab.bench.crossover", json.dumps(asked)]
        client = bed.run_in(HUB, line, env=settings, stdout=subprocess.PIPE, text=True)
        for told in client.stdout or ():
            if told.startswith("{"):
                yield _from_document(json.loads(told))
            else:
                say(told.rstrip())
        if client.wait():
            raise ClusterError(f"the client in the test bed ended with status {client.returncode}", hint="see above")


def _inside(asked: dict[str, Any]) -> None:
    """In the hub of a bed: run the cells of one link and print each as a line of JSON."""
    from distributed import Client

    from kvlab.runtime import dask_settings
    from kvlab.runtime.worker_process import START_SECONDS

    dask_settings.apply()
    told = asked["plan"]
    plan = Plan(tuple(told["contexts"]), tuple(told["links"]), tuple(told["edges"]), told["rounds"])
    # A lab on somebody's scheduler uses the workers that are there: both must be.
    with Client(asked["address"], timeout=START_SECONDS, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)
    with Lab(
        asked["address"],
        model=asked["model"],
        same_host="frames",
        kv_budget=KV_BUDGET,
        progress=Progress("nothing"),
    ) as lab:
        for cell in _cells(lab, plan, asked["link"], asked["rate"], _tell):
            _tell(json.dumps(asdict(cell)))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _cells(lab: Lab, plan: Plan, link: float | None, rate: float | None, say: Say) -> Iterator[Cell]:
    for n_tokens in plan.contexts:
        states = _states(lab, n_tokens, max(plan.edges))
        for n_edges in plan.edges:
            cell = Cell(n_tokens, link, n_edges, rate, lab.core.cost.as_dict())
            _rounds(cell, states[:n_edges], plan.rounds)
            over = "as fast as it goes" if rate is None else f"{rate / 1e6:.0f} Mbit/s"
            told = ", ".join(f"{name} {arm.median:.2f}" for name, arm in cell.arms.items())
            say(f"{n_tokens} tokens, {over}, {n_edges} at once: {told} s; chosen {cell.chosen}")
            yield cell
        del states
        lab.clear()


def _from_document(told: dict[str, Any]) -> Cell:
    arms = {name: Arm(**arm) for name, arm in told.pop("arms").items()}
    return Cell(**told, arms=arms)


def _states(lab: Lab, n_tokens: int, n: int) -> list[KVState]:
    """``n`` states of ``n_tokens`` tokens of different texts on the source worker."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    ids = lab.core.tokenizer.text_ids(text[: 12 * n_tokens * n])
    width = BYTES_PER_ID * n_tokens
    pieces = [lab.core.tokenizer.decode(ids[i * width : (i + 1) * width]) for i in range(n)]
    return [lab.materialize(f"{i}. {piece}", worker=SOURCE) for i, piece in enumerate(pieces)]


def _rounds(cell: Cell, states: Sequence[KVState], rounds: int) -> None:
    cell.arms = {name: Arm() for name in ARMS}
    for number in range(rounds):
        for name in ARMS[number % len(ARMS) :] + ARMS[: number % len(ARMS)]:
            seconds, answers = _at_once(states, None if name == "ours" else name)
            arm = cell.arms[name]
            arm.seconds.append(seconds)
            arm.predicted.append(max(answer.decision.chosen.seconds for answer in answers))
            arm.roads.append(_counted(answer.decision.chosen.how for answer in answers))
            del answers
            for state in states:
                state.transfer(SOURCE)


def _at_once(states: Sequence[KVState], how: str | None) -> tuple[float, list[Generation]]:
    """Seconds until the last of all edges has its first token."""

    def one(state: KVState) -> Generation:
        return state.resume(SUFFIX, max_new_tokens=1, worker=TARGET, how=how)

    with ThreadPoolExecutor(len(states)) as pool:
        began = time.perf_counter()
        answers = list(pool.map(one, states))
        return time.perf_counter() - began, answers


def _counted(names: Iterable[str]) -> dict[str, int]:
    return {name: len(list(group)) for name, group in itertools.groupby(sorted(names))}


def _mean(values: Sequence[float]) -> Metric:
    return Metric(statistics.fmean(values), "of 1", "measured", len(values), min(values), max(values))


def _told(cell: Cell) -> dict[str, Any]:
    figures = {"best": cell.best, "chosen": cell.chosen, "regret": cell.regret, "tied": cell.tied}
    return {**asdict(cell), **figures, "apart": cell.apart}


if __name__ == "__main__":
    _inside(json.loads(sys.argv[1]))
