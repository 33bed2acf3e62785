"""Deciding on the lab's behalf: the world as it is now, one decision at a time, each booked before the next is made.

A decision that did not see those before it would send every one of eight states over the same free link.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvlab.cost.corrections import Corrections
from kvlab.cost.decide import CHEAPEST, Decision, Policy, decide
from kvlab.cost.model import DISK, CostModel, link_name
from kvlab.cost.siblings import Group, Sibling, decide_siblings
from kvlab.cost.world import Edge, Piece, View, WorkerView
from kvlab.runtime.core import Core
from kvlab.state.records import StateRecord

LONG_TOKENS = 64
"""Shorter prefills are mostly constant costs and say little of the curve."""


def path_of(record: StateRecord | None) -> tuple[Piece, ...]:
    """A state's segments as a decision sees them; nothing for a fresh start."""
    segments = record.segments if record is not None else ()
    return tuple(Piece(segment.recipe, segment.n_tokens, segment.nbytes) for segment in segments)


class Planner:
    """Decides edges, books what they will take, and learns from what they took. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._corrections = Corrections()
        self._booked: dict[str, tuple[str, ...]] = {}

    @property
    def cost(self) -> CostModel:
        """What was calibrated, corrected by the edges since then."""
        return self._corrections.applied(self._core.cost)

    def view(self, only: frozenset[str] | None = None) -> View:
        """The world now; ``only`` limits the candidates but not where states may lie.

        Raises
        ------
        ClusterError
            If no worker is up.
        """
        core = self._core
        views = tuple(
            WorkerView(
                worker.name,
                worker.host,
                core.catalog.resident(worker.name),
                core.load.queue_seconds(worker.name),
                core.threads_for(worker.name),
            )
            for worker in core.living_workers()
        )
        names = [view.name for view in views]
        if only is not None and only.isdisjoint(names):
            only = None
        links = [link_name(source, target) for source in (*names, DISK) for target in names if source != target]
        queues = {link: core.load.queue_seconds(link) for link in links}
        return View(views, self.cost, core.same_host == "map", only, queues, core.catalog.on_disk())

    def plan(
        self, edge: Edge, action: str, *, only: frozenset[str] | None = None, policy: Policy = CHEAPEST
    ) -> Decision:
        """Decide an edge and book its worker and links under ``action``, until :meth:`release`."""
        return self.book(action, lambda view: decide(edge, view, policy), only)

    def book(self, action: str, decide_in: Callable[[View], Decision], only: frozenset[str] | None) -> Decision:
        """As :meth:`plan`, by a decision of the caller's own in the world as it is now."""
        with self._lock:
            decision = decide_in(self.view(only))
            self._book(action, decision)
            return decision

    def book_as_decided(self, action: str, decision: Decision) -> None:
        """Book what was decided before, as :meth:`plan` does; the world is not looked at again."""
        with self._lock:
            self._book(action, decision)

    def plan_siblings(
        self,
        edge: Edge,
        siblings: Sequence[Sibling],
        actions: Sequence[str],
        *,
        only: frozenset[str] | None = None,
        policy: Policy = CHEAPEST,
    ) -> tuple[Group, ...]:
        """Decide siblings together; each group is booked under the action of its first member."""
        with self._lock:
            groups = decide_siblings(edge, siblings, self.view(only), policy)
            for group in groups:
                self._book(actions[group.members[0]], group.decision)
            return groups

    def release(self, action: str) -> None:
        """What was booked under ``action`` is free again. Unknown actions are ignored."""
        for name in self._booked.pop(action, ()):
            self._core.load.end(name, action)

    def _book(self, action: str, decision: Decision) -> None:
        edge, chosen, load = decision.edge, decision.chosen, self._core.load
        steps = max(0, edge.n_steps - 1)
        decoding = self.cost.decode.seconds(steps, edge.n_branches, edge.n_tokens)
        booked = [chosen.worker]
        load.begin(chosen.worker, action, chosen.work_seconds + decoding)
        for source, nbytes in chosen.moved.items():
            link = link_name(source, chosen.worker)
            load.begin(link, action, self.cost.link(source, chosen.worker).seconds(nbytes))
            booked.append(link)
        self._booked[action] = tuple(booked)

    def learn(self, decision: Decision, actual: Mapping[str, Any]) -> None:
        """Correct the model by what an edge really cost, where it went as planned and nothing else was in its way."""
        chosen, terms = decision.chosen, actual["terms"]
        if actual["how"] != chosen.how or actual["worker"] != chosen.worker:
            return
        waited = chosen.terms.get("queue", 0.0) + chosen.terms.get("link queue", 0.0)
        used, calibrated, n_tokens = decision.view.cost, self._core.cost, max(1, decision.edge.n_tokens)
        with self._lock:
            seen = self._corrections
            if chosen.how in ("transfer", "restore") and len(chosen.moved) == 1 and not waited:
                (source,) = chosen.moved
                links = (cost.link(source, chosen.worker).seconds(chosen.nbytes) for cost in (calibrated, used))
                expected = _without_factor(chosen.terms["transfer"], *links)
                seen = seen.saw_link(link_name(source, chosen.worker), expected, terms["transfer"])
            elif chosen.how == "recompute" and n_tokens >= LONG_TOKENS:
                curves = (cost.prefill.seconds(n_tokens) for cost in (calibrated, used))
                seen = seen.saw_prefill(_without_factor(chosen.terms["prefill"], *curves), terms["prefill"])
            if chosen.how != "hybrid" and not waited:
                expected = _without_factor(chosen.terms["overhead"], calibrated.task_seconds, used.task_seconds)
                seen = seen.saw_overhead(expected, terms["overhead"])
            self._corrections = seen


def _without_factor(predicted: float, calibrated: float, used: float) -> float:
    """``predicted`` by a model that says ``used`` where the calibrated one says ``calibrated``, as that one would have it."""
    return predicted * calibrated / used if used > 0 else 0.0
