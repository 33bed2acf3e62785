"""How good a run's decisions were: what held of the predictions, what an audit found, and how much of the state was reused.

Every figure is a fold of the run's tables; views that follow a cursor fold the same rows up to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from kvlab.display.drawing import alternatives_of
from kvlab.display.quantities import count_text, counted
from kvlab.store.fold import Row, World

CARRIES_STATE = ("in place", "map", "transfer", "restore", "hybrid")
MISSES = ("prefix differs", "evicted", "recompute cheaper", "policy", "load failed")
"""Why state was not reused, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class DecisionQuality:
    """Counts of state edges, and of tokens of state on them.

    Attributes
    ----------
    n_done, n_kept
        Edges that were carried out, and of these as planned.
    error
        Median relative error of the predicted seconds of those; None where none can be told.
    n_audited, n_best
        Edges of which other roads were measured too, and of these where none was faster than the chosen one.
    regrets
        What the choice cost over the best, as a part of the best, by audited edge.
    n_reused, n_reachable
        Tokens of state not computed again, of all that edges handed on or would have.
    misses
        Edges whose state was not reused, by :data:`MISSES`.
    """

    n_done: int
    n_kept: int
    error: float | None
    n_audited: int
    n_best: int
    regrets: tuple[float, ...]
    n_reused: int
    n_reachable: int
    misses: dict[str, int]

    @property
    def lines(self) -> dict[str, str]:
        """The figures as words, by subject; only those that there are."""
        found = {"as planned": f"{count_text(self.n_kept)} of {counted(self.n_done, 'edge')}"}
        if self.error is not None:
            found["as planned"] += f", predicted seconds off by {_percent(self.error)} (median)"
        if self.n_audited:
            told = f"{count_text(self.n_best)} of {counted(self.n_audited, 'audited edge')}"
            regrets = f"regret {_percent(median(self.regrets))} (median), {_percent(max(self.regrets))} (most)"
            found["decided best"] = f"{told}, {regrets}"
        if self.n_reachable:
            share = _percent(self.n_reused / self.n_reachable)
            state = counted(self.n_reachable, "token of state", "tokens of state")
            found["reused"] = f"{count_text(self.n_reused)} of {state} ({share})"
        if self.misses:
            told = ", ".join(f"{name} {count_text(n)}" for name, n in self.misses.items())
            found["not reused"] = told
        return found


def decision_quality(world: World) -> DecisionQuality:
    """All figures of a run."""
    done = [row for row in world.rows["edges"] if row["actual_how"] and row["chosen"]]
    kept = [row for row in done if row["actual_how"] == row["chosen"]]
    errors = [
        abs(row["actual_seconds"] / row["predicted_seconds"] - 1)
        for row in kept
        if row["predicted_seconds"] and row["actual_seconds"] is not None
    ]
    regrets = tuple(row["regret"] for row in world.rows["edges"] if row["regret"] is not None)
    reused = [(row["n_tokens"] or 0, n) for row in done if (n := reused_tokens(world, row)) is not None]
    lost = lost_edges(world)
    found = Counter(name for row in done if (name := miss_of(row)))
    found["prefix differs"] += len(lost)
    return DecisionQuality(
        len(done),
        len(kept),
        median(errors) if errors else None,
        len(regrets),
        sum(regret == 0 for regret in regrets),
        regrets,
        sum(n for _, n in reused),
        sum(n for n, _ in reused) + sum(edge["n_tokens"] for edge in lost),
        {name: found[name] for name in MISSES if found[name]},
    )


def lost_edges(world: World) -> list[dict[str, Any]]:
    """State edges of the graph whose state could not be used as it is, already when it was compiled."""
    document = world.run.get("graph")
    edges: Iterable[dict[str, Any]] = document.get("state_edges", ()) if isinstance(document, dict) else ()
    return [edge for edge in edges if edge.get("recompute_because")] if world.flow != "text" else []


def reused_tokens(world: World, row: Row) -> int | None:
    """Tokens of an edge's state that its agent did not compute again; None before its turn is told."""
    turn = world.find("turns", row["target"])
    n_reused: int | None = turn["n_reused"] if turn is not None else None
    return n_reused


def miss_of(row: Row) -> str | None:
    """Which of :data:`MISSES` an edge is that was carried out; None if its state was used."""
    if row["actual_how"] not in ("recompute", "hybrid"):
        return None
    if row["chosen"] != row["actual_how"]:
        return "load failed"
    if not any(a.get("how") in CARRIES_STATE and not a.get("excluded") for a in alternatives_of(row)):
        return "evicted"
    return "recompute cheaper" if row["policy"] in (None, "cheapest") else "policy"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
