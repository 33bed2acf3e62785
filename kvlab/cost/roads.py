"""Every road of a state edge to every worker, with its predicted terms. Pure.

Terms are seconds: ``queue`` until the worker is free, ``link queue`` until the link is, ``transfer`` of the missing bytes,
``prefill`` of what is computed again, ``resume`` (prefill of the new tokens), ``overhead`` of tasks and copies, and
``overlap``, which is negative: bytes travel while the worker is still busy, or while it prefills the front of a hybrid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kvlab.cost.model import DISK, CostModel, link_name
from kvlab.cost.world import Edge, Piece, View, WorkerView

How = Literal["in place", "map", "transfer", "restore", "hybrid", "recompute"]

MOVES_LEAST: tuple[How, ...] = ("in place", "map", "transfer", "restore", "hybrid", "recompute")
"""Of two roads that take equally long, the earlier one is taken."""

CARRIES: tuple[How, ...] = ("in place", "map", "transfer", "restore")
"""Roads that use the state as it is."""

SHORTEST_PART = 16
"""Tokens: a hybrid whose front or back would be shorter is one of the pure roads with more tasks."""


@dataclass(frozen=True, slots=True)
class Split:
    """Where a hybrid divides the state: ``front`` tokens of segment ``recipe`` are prefilled again, its rest is moved.

    Missing segments before it are prefilled again whole, those after it moved whole.
    """

    recipe: str
    front: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """One road to one worker.

    Attributes
    ----------
    terms
        Predicted seconds by name. ``overlap`` is negative: what is done while something else is waited for.
    nbytes
        Bytes on a wire, or read from disk.
    missing_tokens
        Tokens that the worker lacks.
    again
        Segments that are prefilled again, whole.
    restored
        Segments that are read back from disk.
    split
        For a hybrid that divides a segment.
    moved
        Bytes by source: a worker, or :data:`~kvlab.cost.model.DISK`.
    excluded
        Why it cannot be taken; None if it can.
    """

    how: How
    worker: str
    terms: Mapping[str, float]
    nbytes: int = 0
    missing_tokens: int = 0
    again: tuple[str, ...] = ()
    split: Split | None = None
    moved: Mapping[str, int] = field(default_factory=dict)
    excluded: str | None = None
    restored: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Predicted seconds until the first token."""
        return sum(self.terms.values())

    @property
    def work_seconds(self) -> float:
        """Of these, how long the worker's model is busy."""
        return self.terms.get("prefill", 0.0) + self.terms.get("resume", 0.0)


def again_tokens(edge: Edge, road: Alternative) -> int:
    """Tokens of the state that a road prefills again."""
    whole = sum(piece.n_tokens for piece in edge.path if piece.recipe in road.again)
    return whole + (road.split.front if road.split is not None else 0)


def roads_for(edge: Edge, view: View) -> tuple[Alternative, ...]:
    """Every road to every worker that may be chosen."""
    holders = {piece.recipe: [w for w in view.workers if piece.recipe in w.resident] for piece in edge.path}
    found: list[Alternative] = []
    for worker in view.workers:
        if view.candidates is None or worker.name in view.candidates:
            found.extend(_Roads(edge, worker, holders, view).all())
    return tuple(found)


class _Wire(NamedTuple):
    """How bytes come: seconds until the links are free, seconds on them, and bytes by source."""

    waiting: float
    moving: float
    nbytes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Roads:
    """The roads of one edge to one worker."""

    edge: Edge
    worker: WorkerView
    holders: Mapping[str, Sequence[WorkerView]]
    view: View

    @property
    def cost(self) -> CostModel:
        return self.view.cost

    @property
    def resume(self) -> float:
        return self.cost.prefill.seconds(self.edge.new_tokens, self.edge.n_tokens, self.worker.threads)

    def all(self) -> list[Alternative]:
        edge, worker = self.edge, self.worker
        base = {"queue": worker.queue_seconds, "overhead": self.cost.task_seconds}
        if not edge.path:
            return [Alternative("recompute", worker.name, {**base, "prefill": self.resume})]
        missing = [piece for piece in edge.path if piece.recipe not in worker.resident]
        if not missing:
            return [Alternative("in place", worker.name, {**base, "resume": self.resume}), self.recompute(edge.path, 0)]
        tokens = sum(piece.n_tokens for piece in missing)
        recompute = self.recompute(missing, tokens)
        if not all(self.holders[piece.recipe] for piece in missing):
            restore = self.restore(missing, tokens)
            return [recompute] if restore is None else [restore, recompute]
        if self.view.mappable and self._on_this_host(missing):
            terms = {**base, "transfer": self.cost.map_seconds, "resume": self.resume}
            return [Alternative("map", worker.name, terms, 0, tokens), recompute]
        others = (self.restore(missing, tokens), self.hybrid(missing, tokens))
        return [self.transfer(missing, tokens), *(road for road in others if road is not None), recompute]

    def _on_this_host(self, missing: Sequence[Piece]) -> bool:
        host = self.worker.host
        return all(any(holder.host == host for holder in self.holders[piece.recipe]) for piece in missing)

    def restore(self, missing: Sequence[Piece], tokens: int) -> Alternative | None:
        """Read back what is on disk, while the worker may still be busy; None where nothing of it is.

        What another worker of this host has is mapped, what is elsewhere crosses, and what nobody has is prefilled again.
        """
        mapped = {
            p.recipe for p in missing if self.view.mappable and self.holders[p.recipe] and self._on_this_host([p])
        }
        read = [piece for piece in missing if piece.recipe in self.view.disk - mapped]
        if not read:
            return None
        rest = [piece for piece in missing if piece not in read and piece.recipe not in mapped]
        crossing = [piece for piece in rest if self.holders[piece.recipe]]
        again = [piece for piece in rest if not self.holders[piece.recipe]]
        sizes = {piece.recipe: piece.nbytes for piece in (*read, *crossing)}
        wire = self._wire(sizes, {piece.recipe: [DISK] for piece in read})
        moving = wire.moving + (self.cost.map_seconds if mapped else 0.0)
        terms = {
            "queue": self.worker.queue_seconds,
            "link queue": wire.waiting,
            "transfer": moving,
            "prefill": self._prefill(again),
            "resume": self.resume,
            "overhead": self.cost.task_seconds * (1 + len(read) + len(again)),
            "overlap": -min(self.worker.queue_seconds, wire.waiting + moving),
        }
        return Alternative(
            "restore",
            self.worker.name,
            _named(terms),
            sum(wire.nbytes.values()),
            tokens,
            again=tuple(piece.recipe for piece in again),
            moved=wire.nbytes,
            restored=tuple(piece.recipe for piece in read),
        )

    def transfer(self, missing: Sequence[Piece], tokens: int) -> Alternative:
        """All missing bytes cross, while the worker may still be busy with other work."""
        wire = self._wire({piece.recipe: piece.nbytes for piece in missing})
        queue = self.worker.queue_seconds
        terms = {
            "queue": queue,
            "link queue": wire.waiting,
            "transfer": wire.moving,
            "resume": self.resume,
            "overhead": self.cost.task_seconds,
            "overlap": -min(queue, wire.waiting + wire.moving),
        }
        nbytes = sum(wire.nbytes.values())
        return Alternative("transfer", self.worker.name, _named(terms), nbytes, tokens, moved=wire.nbytes)

    def recompute(self, again: Sequence[Piece], tokens: int) -> Alternative:
        """Prefill the pieces ``again`` on top of those that the worker has, each as a task of its own."""
        terms = {
            "queue": self.worker.queue_seconds,
            "overhead": self.cost.task_seconds * (1 + len(again)),
            "prefill": self._prefill(again),
            "resume": self.resume,
        }
        recipes = tuple(piece.recipe for piece in again)
        return Alternative("recompute", self.worker.name, terms, 0, tokens, again=recipes)

    def hybrid(self, missing: Sequence[Piece], tokens: int) -> Alternative | None:
        """Prefill the first x missing tokens while the rest arrives; x is where both ends meet, found by halving.

        More front takes longer to compute and leaves less to move, so the later of the two ends has one minimum.
        """
        low, high = SHORTEST_PART, tokens - SHORTEST_PART
        if low > high:
            return None
        while low < high:
            middle = (low + high) // 2
            ends = self._ends(missing, middle)
            low, high = (low, middle) if ends.computed >= ends.arrived else (middle + 1, high)
        return min(
            (self._ends(missing, x).road for x in {max(SHORTEST_PART, low - 1), low}), key=lambda road: road.seconds
        )

    def _ends(self, missing: Sequence[Piece], front: int) -> _Ends:
        again, split, moved = _divided(missing, front)
        cost, worker = self.cost, self.worker
        wire = self._wire(moved)
        nbytes = sum(wire.nbytes.values())
        # What arrives takes cores from what computes.
        prefill = self._prefill(again, split) + nbytes * cost.receive_seconds_per_byte
        joined = 0
        cutting = 0.0
        if split is not None:
            piece = next(piece for piece in missing if piece.recipe == split.recipe)
            joined = piece.nbytes
            cutting = moved[split.recipe] / cost.copy_bytes_per_second
        tasks = len(again) + (4 if split is not None else 0)  # front, back, its arrival, and joining them
        computed = worker.queue_seconds + prefill
        arrived = cutting + wire.waiting + wire.moving
        terms = {
            "queue": worker.queue_seconds,
            "link queue": wire.waiting,
            "transfer": wire.moving,
            "prefill": prefill,
            "resume": self.resume,
            "overhead": cost.task_seconds * (1 + tasks) + cutting + joined / cost.copy_bytes_per_second,
            "overlap": -min(computed, arrived),
        }
        tokens = sum(piece.n_tokens for piece in missing)
        road = Alternative(
            "hybrid", worker.name, _named(terms), nbytes, tokens, tuple(p.recipe for p in again), split, wire.nbytes
        )
        return _Ends(computed, arrived, road)

    def _prefill(self, again: Sequence[Piece], split: Split | None = None) -> float:
        """Seconds to prefill these pieces, and the front of the split one, each on what lies before it in the path."""
        curve, threads = self.cost.prefill, self.worker.threads
        recipes = {piece.recipe for piece in again}
        seconds, start = 0.0, 0
        for piece in self.edge.path:
            if piece.recipe in recipes:
                seconds += curve.seconds(piece.n_tokens, start, threads)
            elif split is not None and piece.recipe == split.recipe:
                seconds += curve.seconds(split.front, start, threads)
            start += piece.n_tokens
        return seconds

    def _wire(self, moved: Mapping[str, int], sources: Mapping[str, Sequence[str]] | None = None) -> _Wire:
        """Each segment comes from the holder that can send it soonest; different sources send at the same time.

        ``sources`` are those of segments that do not come from the workers that hold them.
        """
        nbytes: dict[str, int] = {}
        for recipe, size in moved.items():
            holders = (sources or {}).get(recipe) or [holder.name for holder in self.holders[recipe]]
            source = min(holders, key=self._sending(size))
            nbytes[source] = nbytes.get(source, 0) + size
        ends = [
            (self._waiting(source), self.cost.link(source, self.worker.name).seconds(size))
            for source, size in nbytes.items()
        ]
        waiting, moving = max(ends, key=sum)
        return _Wire(waiting, moving, nbytes)

    def _sending(self, nbytes: int) -> Callable[[str], tuple[float, str]]:
        target = self.worker.name

        def end(holder: str) -> tuple[float, str]:
            return self._waiting(holder) + self.cost.link(holder, target).seconds(nbytes), holder

        return end

    def _waiting(self, source: str) -> float:
        return self.view.link_queues.get(link_name(source, self.worker.name), 0.0)


class _Ends(NamedTuple):
    """When the front of a hybrid is computed, when its back has arrived, and the road with both."""

    computed: float
    arrived: float
    road: Alternative


def _divided(missing: Sequence[Piece], front: int) -> tuple[list[Piece], Split | None, dict[str, int]]:
    """(pieces prefilled again whole, the divided one, bytes that move by segment) when ``front`` tokens are computed."""
    again: list[Piece] = []
    split: Split | None = None
    moved: dict[str, int] = {}
    left = front
    for piece in missing:
        if left >= piece.n_tokens:
            again.append(piece)
            left -= piece.n_tokens
        elif left > 0:
            split = Split(piece.recipe, left)
            moved[piece.recipe] = piece.nbytes * (piece.n_tokens - left) // piece.n_tokens
            left = 0
        else:
            moved[piece.recipe] = piece.nbytes
    return again, split, moved


def _named(terms: Mapping[str, float]) -> dict[str, float]:
    """Without a wait for links and an overlap that are not there."""
    return {name: value for name, value in terms.items() if value or name not in ("link queue", "overlap")}
