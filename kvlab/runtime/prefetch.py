"""Prefetch: a state whose user still waits for somebody's text is sent on its way at once.

While an agent decodes, links are idle. Where the edge of a waiting agent will have to move its state, a task that only
touches the segments is queued on the target worker: Dask fetches them for it, beside whatever runs there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from kvlab.cost.decide import Decision, Policy, decide
from kvlab.cost.policies import Forced
from kvlab.cost.roads import Alternative
from kvlab.cost.world import Edge, View
from kvlab.errors import NoRoom
from kvlab.runtime import tasks
from kvlab.runtime.operations import Operations
from kvlab.runtime.planning import Planner
from kvlab.state.records import StateRecord


@dataclass(frozen=True, slots=True)
class Prefetched:
    """Segments that were sent to ``worker`` ahead of time, since ``at`` (``time.monotonic``)."""

    worker: str
    recipes: frozenset[str]
    at: float
    arrival: Any


def prefetch(
    operations: Operations,
    planner: Planner,
    edge: Edge,
    parent: StateRecord,
    only: frozenset[str] | None,
    policy: Policy,
) -> Prefetched | None:
    """Send what ``edge`` will need to the worker where it will most likely run; None where nothing has to move.

    Nobody is asked to compute ahead of time, so a hybrid's front moves as well: there is time for it. Without room in
    the budget nothing is sent, and the edge is decided when it is ready.
    """
    core = operations.core
    view = planner.view(only)
    # When the agent is ready, what it waits for is done, and with it most of what the workers are busy with.
    idle = replace(view, workers=tuple(replace(worker, queue_seconds=0.0) for worker in view.workers), link_queues={})
    decision = decide(edge, idle, policy)
    chosen = decision.chosen
    roads = [road for road in decision.alternatives if road.excluded is None]
    moving = [road for road in policy.allowed(edge, roads) if road.how == "transfer" and road.worker == chosen.worker]
    if chosen.how not in ("transfer", "hybrid") or not moving:
        return None
    newest = []
    for segment in parent.segments:
        copies = operations.living_copies(segment.recipe)
        if not copies:  # lost since the view was taken
            return None
        if not any(chosen.worker in copy.workers for copy in copies.values()):
            newest.append((segment, copies[max(copies)]))
    reserved: list[str] = []
    try:
        for segment, copy in newest:
            operations.reserve_replica(copy, segment, chosen.worker, evict=False)
            reserved.append(f"{copy.key}@{chosen.worker}")
    except NoRoom:
        for name in reserved:
            core.catalog.budget.release(name)
        return None
    arrival = core.client.submit(
        tasks.touch,
        *[copy.future for _, copy in newest],
        pure=False,
        workers=core.address_of(chosen.worker),
        allow_other_workers=True,
    )
    return Prefetched(chosen.worker, frozenset(segment.recipe for segment, _ in newest), time.monotonic(), arrival)


def decide_prefetched(edge: Edge, view: View, sent: Prefetched) -> Decision:
    """The decision of an edge whose state is on its way, or has come: to use it there.

    Its transfer is predicted as of now: what has passed since it was sent counts as overlap.
    """
    workers = tuple(
        replace(worker, resident=worker.resident - sent.recipes) if worker.name == sent.worker else worker
        for worker in view.workers
    )
    decision = decide(edge, replace(view, workers=workers, link_queues={}), Forced("transfer", sent.worker))
    road = decision.chosen
    if road.how != "transfer":
        return decision
    passed = min(time.monotonic() - sent.at, road.terms["transfer"] + road.terms.get("overlap", 0.0))
    terms = {**road.terms, "overlap": road.terms.get("overlap", 0.0) - passed}
    chosen: Alternative = replace(road, terms=terms)
    others = tuple(chosen if one is road else one for one in decision.alternatives)
    reason = f"sent ahead to {sent.worker} while its text was still being written: {decision.reason}"
    return replace(decision, alternatives=others, chosen=chosen, reason=reason)
