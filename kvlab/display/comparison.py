"""One stateflow run beside textflow runs of the same workflow: the figures that tables and reports show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from kvlab.display.quantities import ratio, seconds_text
from kvlab.display.worlds import Shown, world_of
from kvlab.errors import InvalidInput
from kvlab.store.fold import Row, World


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """One agent or context of a run. Seconds and tokens as :mod:`kvlab.bench.metrics` defines them; all measured.

    ``text_*`` is the best of the textflow runs for this agent; ``same_tokens`` whether all of them answered with the
    very same token ids. None where there is nothing to compare.
    """

    agent: str
    worker: str | None
    chosen: str | None
    did: str | None
    ttft_seconds: float | None
    queue_seconds: float | None
    n_prefilled: int | None
    n_reused: int | None
    n_generated: int | None
    text_ttft_seconds: float | None = None
    text_prefilled: int | None = None
    same_tokens: bool | None = None

    @property
    def ttft_ratio(self) -> float | None:
        """TTFT of textflow over that of stateflow: above 1 stateflow is faster."""
        return ratio(self.text_ttft_seconds, self.ttft_seconds)

    @property
    def deviated(self) -> bool:
        """Whether something else was done than had been chosen."""
        return self.did is not None and self.chosen is not None and self.did != self.chosen

    @property
    def decision(self) -> str | None:
        """How its state edge was served, and what had been planned if that differs."""
        return f"{self.did} (planned {self.chosen})" if self.deviated else self.did or self.chosen


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Totals of one run; all measured."""

    name: str
    flow: str
    status: str
    wall_seconds: float | None
    n_prefilled: int
    n_reused: int
    n_generated: int
    bytes_moved: int
    peak_kv_bytes: int | None

    @property
    def share_reused(self) -> float | None:
        """Share of prompt tokens that were not computed again, 0 to 1."""
        return ratio(self.n_reused, self.n_reused + self.n_prefilled)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run, and the textflow it is compared with, if any. ``text`` is the textflow run of least wall time."""

    agents: tuple[AgentFigures, ...]
    run: RunFigures
    text: RunFigures | None
    n_text_runs: int

    @property
    def wall_ratio(self) -> float | None:
        """Wall time of textflow over that of stateflow."""
        return ratio(self.text.wall_seconds, self.run.wall_seconds) if self.text else None

    @property
    def prefill_ratio(self) -> float | None:
        """Tokens prefilled by textflow over those by stateflow."""
        return ratio(self.text.n_prefilled, self.run.n_prefilled) if self.text else None

    @property
    def median_ttft_ratio(self) -> float | None:
        """Median over agents of TTFT of textflow over that of stateflow."""
        known = [figures.ttft_ratio for figures in self.agents if figures.ttft_ratio is not None]
        return median(known) if known else None

    @property
    def n_same_tokens(self) -> tuple[int, int] | None:
        """(agents with the same token ids in both flows, agents compared)."""
        known = [figures.same_tokens for figures in self.agents if figures.same_tokens is not None]
        return (sum(known), len(known)) if known else None


def run_figures(run: Shown) -> RunFigures:
    """Totals of a run; its contexts' prefill is counted, once."""
    world = world_of(run)
    agents = [figures for row in world.rows["agents"] if (figures := _figures(world, row))]
    return RunFigures(
        world.name,
        world.flow,
        world.status,
        world.wall_seconds,
        sum(figures.n_prefilled or 0 for figures in agents),
        sum(figures.n_reused or 0 for figures in agents),
        sum(figures.n_generated or 0 for figures in agents),
        world.bytes_moved,
        world.peak_kv_bytes,
    )


def compare(run: Shown, textflows: Sequence[Shown] = ()) -> Comparison:
    """Figures of ``run``, beside the best of ``textflows``.

    Raises
    ------
    InvalidInput
        If one of ``textflows`` is no textflow run, or of a workflow of another name.
    """
    world, others = world_of(run), [world_of(other) for other in textflows]
    for other in others:
        if other.flow != "text" or other.name != world.name:
            raise InvalidInput(
                f"run {other.name!r} (flow {other.flow!r}) is no textflow run of {world.name!r}",
                hint='lab.run(workflow, flow="text") makes one',
            )
    figures = [_compared(figures, world, others) for row in world.rows["agents"] if (figures := _figures(world, row))]
    totals = [run_figures(other) for other in others]
    best = min(totals, key=lambda t: (t.wall_seconds is None, t.wall_seconds or 0.0), default=None)
    return Comparison(tuple(figures), run_figures(world), best, len(others))


def _figures(world: World, agent: Row) -> AgentFigures | None:
    name = agent["agent"]
    edge = next((row for row in reversed(world.rows["edges"]) if row["target"] == name or row["agent"] == name), {})
    turn = world.find("turns", name)
    if agent["status"] == "skipped":
        return AgentFigures(name, None, "skipped", None, None, None, None, None, None)
    tool = next((row for row in world.rows["operators"] if row["agent"] == name and row["op"] == "tool"), None)
    if tool is not None:
        told = f"tool, {seconds_text(tool['seconds'])}" if tool["seconds"] is not None else "tool"
        return AgentFigures(name, tool["worker"], told, None, None, None, None, None, None)
    if turn is None:
        state = world.find("states", agent["state"])
        if state is None or state["operator"] != "materialize":
            return None
        below = sum((world.find("states", parent) or {}).get("n_tokens") or 0 for parent in state["parents"][:1])
        own = (state["n_tokens"] or 0) - below
        return AgentFigures(
            name, agent["worker"], edge.get("chosen"), edge.get("actual_how"), None, None, own, below, None
        )
    return AgentFigures(
        name,
        turn["worker"],
        edge.get("chosen"),
        edge.get("actual_how"),
        turn["ttft_seconds"],
        turn["queue_seconds"],
        turn["n_prefilled"],
        turn["n_reused"],
        turn["n_generated"],
    )


def _compared(figures: AgentFigures, world: World, others: Sequence[World]) -> AgentFigures:
    turns = [turn for other in others if (turn := other.find("turns", figures.agent))]
    mine = world.find("turns", figures.agent)
    if not turns or mine is None:
        return figures
    best = min(turns, key=lambda turn: turn["ttft_seconds"])
    return replace(
        figures,
        text_ttft_seconds=best["ttft_seconds"],
        text_prefilled=best["n_prefilled"],
        same_tokens=all(list(turn["token_ids"]) == list(mine["token_ids"]) for turn in turns),
    )
