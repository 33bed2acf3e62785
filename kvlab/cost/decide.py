"""One decision: for a state edge, which worker and which road. A plain function of an edge and a view of the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kvlab.cost.model import CostModel

How = Literal["in place", "map", "transfer", "recompute"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment of the state that the edge hands on."""

    recipe: str
    n_tokens: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A state edge about to be decided. ``path`` is the source's segments from the root; empty for a fresh start.

    ``new_tokens`` is the total over the branches that will be fed as one batch on top of the path.
    """

    id: str
    source: str
    target: str
    path: tuple[Piece, ...]
    new_tokens: int

    @property
    def n_tokens(self) -> int:
        """Tokens of the state."""
        return sum(piece.n_tokens for piece in self.path)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A candidate worker: the segments it holds, and how long until it is free."""

    name: str
    host: str
    resident: frozenset[str]
    queue_seconds: float = 0.0
    threads: int = 1


@dataclass(frozen=True, slots=True)
class View:
    """The world as a decision sees it.

    Attributes
    ----------
    workers
        All that are up: wherever a segment may lie.
    cost
        What was measured.
    mappable
        False when states cross between processes as frames.
    candidates
        Names of the workers that may be chosen; None: any.
    """

    workers: tuple[WorkerView, ...]
    cost: CostModel
    mappable: bool = True
    candidates: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One road to one worker. ``terms`` are predicted seconds by name; ``excluded`` says why it cannot be taken."""

    how: How
    worker: str
    terms: Mapping[str, float]
    nbytes: int = 0
    missing_tokens: int = 0
    excluded: str | None = None

    @property
    def seconds(self) -> float:
        """Predicted seconds until the first token."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class Decision:
    """All alternatives, the chosen one, and why in one sentence."""

    edge: Edge
    alternatives: tuple[Alternative, ...]
    chosen: Alternative
    reason: str


def alternatives_for(edge: Edge, view: View) -> tuple[Alternative, ...]:
    """Every road to every worker, with predicted terms (seconds): queue, transfer, prefill, resume, overhead."""
    holders = {piece.recipe: [w for w in view.workers if piece.recipe in w.resident] for piece in edge.path}
    found: list[Alternative] = []
    for worker in view.workers:
        if view.candidates is not None and worker.name not in view.candidates:
            continue
        found.extend(_roads(edge, worker, holders, view))
    return tuple(found)


def decide(edge: Edge, view: View) -> Decision:
    """The alternative with the least predicted time to the first token; ties go to the one that moves least.

    Raises
    ------
    ValueError
        If ``view`` has no worker that may be chosen.
    """
    found = alternatives_for(edge, view)
    open_ones = [alternative for alternative in found if alternative.excluded is None]
    if not open_ones:
        msg = f"edge {edge.id}: no worker to decide for"
        raise ValueError(msg)
    order = {"in place": 0, "map": 1, "transfer": 2, "recompute": 3}
    ranked = sorted(open_ones, key=lambda a: (a.seconds, order[a.how], a.worker))
    chosen = ranked[0]
    return Decision(edge, found, chosen, _reason(edge, chosen, ranked[1:]))


def _roads(
    edge: Edge, worker: WorkerView, holders: Mapping[str, Sequence[WorkerView]], view: View
) -> list[Alternative]:
    cost = view.cost
    base = {"queue": worker.queue_seconds, "overhead": cost.task_seconds}
    resume = cost.prefill.seconds(edge.new_tokens, edge.n_tokens, worker.threads)
    if not edge.path:
        return [Alternative("recompute", worker.name, {**base, "prefill": resume}, 0, 0)]
    missing = [piece for piece in edge.path if piece.recipe not in worker.resident]
    if not missing:
        return [
            Alternative("in place", worker.name, {**base, "resume": resume}),
            _recompute(edge, worker, edge.path, resume, cost),
        ]
    recompute = _recompute(edge, worker, missing, resume, cost)
    if not all(holders[piece.recipe] for piece in missing):
        return [recompute]
    local = all(any(holder.host == worker.host for holder in holders[piece.recipe]) for piece in missing)
    tokens = sum(piece.n_tokens for piece in missing)
    if view.mappable and local:
        return [
            Alternative("map", worker.name, {**base, "transfer": cost.map_seconds, "resume": resume}, 0, tokens),
            recompute,
        ]
    nbytes = sum(piece.nbytes for piece in missing)
    terms = {**base, "transfer": cost.frames.seconds(nbytes), "resume": resume}
    return [Alternative("transfer", worker.name, terms, nbytes, tokens), recompute]


def _recompute(edge: Edge, worker: WorkerView, again: Sequence[Piece], resume: float, cost: CostModel) -> Alternative:
    """Prefill the pieces ``again`` on top of those that the worker has, each as a task of its own."""
    prefill, start = 0.0, 0
    for piece in edge.path:
        if piece in again:
            prefill += cost.prefill.seconds(piece.n_tokens, start, worker.threads)
        start += piece.n_tokens
    overhead = cost.task_seconds * (1 + len(again))
    terms = {"queue": worker.queue_seconds, "overhead": overhead, "prefill": prefill, "resume": resume}
    return Alternative("recompute", worker.name, terms, 0, sum(piece.n_tokens for piece in again))


def _reason(edge: Edge, chosen: Alternative, others: Sequence[Alternative]) -> str:
    if not edge.path:
        return f"nothing to reuse: prefill {edge.new_tokens} tokens on {chosen.worker}"
    wanted = "transfer" if chosen.how == "recompute" else "recompute"
    rivals = [other for other in others if other.how == wanted] or [o for o in others if o.how != chosen.how]
    said = {
        "in place": f"{edge.n_tokens} tokens are already on {chosen.worker}",
        "map": f"{chosen.missing_tokens} tokens are on the same host as {chosen.worker}: mapped, no bytes move",
        "transfer": f"{chosen.nbytes / 2**20:.1f} MiB go to {chosen.worker}",
        "recompute": f"{chosen.missing_tokens} tokens are prefilled again on {chosen.worker}",
    }[chosen.how]
    if not rivals:
        return f"{said}; there is no other road"
    rival = rivals[0]
    return f"{said}: {_ms(chosen.seconds)} against {_ms(rival.seconds)} for {rival.how} on {rival.worker} (predicted)"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
