"""Policies that choose among the possible roads of an edge: what a decision is compared with, and what a person forces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvlab.cost.decide import CHEAPEST, Policy
from kvlab.cost.roads import CARRIES, MOVES_LEAST, Alternative, How
from kvlab.cost.world import Edge
from kvlab.errors import InvalidInput


class AlwaysTransfer:
    """The state is always used as it is, wherever it has to be moved."""

    name = "always-transfer"

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:  # noqa: ARG002 - a policy
        """Roads that compute nothing again."""
        return [one for one in ranked if one.how in CARRIES]


class AlwaysRecompute:
    """The state is never used: every edge prefills its whole text again, also where the state lies."""

    name = "always-recompute"

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:  # noqa: ARG002 - a policy
        """Recompute, on any worker."""
        return [one for one in ranked if one.how == "recompute"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Moves what has at least ``n_tokens`` missing tokens, and computes what has fewer."""

    n_tokens: int

    @property
    def name(self) -> str:
        """``threshold(512)``."""
        return f"threshold({self.n_tokens})"

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:  # noqa: ARG002 - a policy
        """One of the two pure roads for each worker."""
        return [one for one in ranked if one.how == self._wanted(one.missing_tokens, one.how)]

    def _wanted(self, missing_tokens: int, how: How) -> How:
        if missing_tokens >= self.n_tokens:
            return how if how in CARRIES else "transfer"
        return "recompute" if missing_tokens else "in place"


@dataclass(frozen=True, slots=True)
class Oracle:
    """What was the fastest when every road was really taken: measured seconds by edge, then by (road, worker)."""

    measured: Mapping[str, Mapping[tuple[str, str], float]]
    name: str = field(default="oracle", init=False)

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:
        """The measured roads of this edge, fastest first."""
        # The edges of siblings are recorded one by one; the first one's stands for the batch.
        first = f"{edge.source}→{edge.target.split(', ')[0]}"
        seconds = self.measured.get(first, {})
        known = [one for one in ranked if (one.how, one.worker) in seconds]
        return sorted(known, key=lambda one: seconds[one.how, one.worker])


@dataclass(frozen=True, slots=True)
class Forced:
    """What a person wants for one edge: a road, a worker, or both."""

    how: How | None = None
    worker: str | None = None
    name: str = field(default="forced", init=False)

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:  # noqa: ARG002 - a policy
        """Exactly those."""
        return [one for one in ranked if self.how in (None, one.how) and self.worker in (None, one.worker)]


def policy_named(told: str | Policy) -> Policy:
    """The policy that a person names: cheapest, always-transfer, always-recompute, threshold(n), or one made by hand.

    Raises
    ------
    InvalidInput
        For any other name; an oracle has to be made from a measured run.
    """
    hint = "cheapest, always-transfer, always-recompute, threshold(512)"
    if not isinstance(told, str):
        if not callable(getattr(told, "allowed", None)) or not isinstance(getattr(told, "name", None), str):
            raise InvalidInput(f"policy={told!r} is no policy", hint=hint)
        return told
    simple: dict[str, Policy] = {
        "cheapest": CHEAPEST,
        "always-transfer": AlwaysTransfer(),
        "always-recompute": AlwaysRecompute(),
    }
    if told in simple:
        return simple[told]
    threshold = re.fullmatch(r"threshold\((\d+)\)", told)
    if threshold:
        return Threshold(int(threshold[1]))
    if told == "oracle":
        raise InvalidInput(
            "an oracle knows what was measured: it cannot be named before a run",
            hint="lab.run(workflow, policy=audited.oracle()) with a run that was made with audit=True",
        )
    raise InvalidInput(f"policy={told!r} is not known", hint=hint)


def oracle_of(run: str, edges: Iterable[Mapping[str, Any]]) -> Oracle:
    """The oracle of a run that was audited, from its table of edges.

    Raises
    ------
    InvalidInput
        If no edge of it was audited.
    """
    measured = {
        row["edge"]: {
            (road["how"], road["worker"]): road["seconds"]
            for road in json.loads(row["audit"])
            if road["seconds"] is not None
        }
        for row in edges
        if row["audit"]
    }
    if not measured:
        raise InvalidInput(f"run {run} was not audited", hint="lab.run(workflow, audit=True)")
    return Oracle(measured)


def forced(told: str | tuple[str, str]) -> Forced:
    """What a person wrote for one edge: a road (``"recompute"``), or a road and a worker.

    Raises
    ------
    InvalidInput
        For a road that does not exist.
    """
    pair = (told, None) if isinstance(told, str) else told
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InvalidInput(f"{told!r} is no road", hint=f"one of {', '.join(MOVES_LEAST)}, or (road, worker)")
    how, worker = pair
    for known in MOVES_LEAST:
        if how == known:
            return Forced(known, worker)
    raise InvalidInput(f"{how!r} is no road", hint=f"one of: {', '.join(MOVES_LEAST)}")
