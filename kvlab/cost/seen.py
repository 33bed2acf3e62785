"""What a decision saw, as plain values of its event: enough to decide once more, with other numbers, wherever it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvlab.cost.decide import Decision
from kvlab.cost.model import DISK, CostModel, DecodeCurve, Link, PrefillCurve, link_name
from kvlab.cost.world import Edge, Piece, View, WorkerView


def seen(decision: Decision) -> dict[str, Any]:
    """The edge and the world of ``decision``: JSON-serialisable, with a rate that has no limit as None.

    Of the links only those from a holder of the state, or its disk, to a candidate are told; a decision asks for no others.
    """
    edge, view = decision.edge, decision.view
    cost, recipes = view.cost, [piece.recipe for piece in edge.path]
    disk = [i for i, recipe in enumerate(recipes) if recipe in view.disk]
    has = {w.name: [i for i, recipe in enumerate(recipes) if recipe in w.resident] for w in view.workers}
    candidates = [w.name for w in view.workers if view.candidates is None or w.name in view.candidates]
    links: dict[str, list[float | None]] = {}
    for source, pieces in [*has.items(), (DISK, disk)]:
        for target in candidates if pieces else ():
            if source != target:
                name, link = link_name(source, target), cost.link(source, target)
                waits = view.link_queues.get(name, 0.0)
                links[name] = [link.t0, _finite(link.bytes_per_second), waits]
    prefill = cost.prefill
    return {
        "pieces": [[piece.n_tokens, piece.nbytes] for piece in edge.path],
        "new_tokens": edge.new_tokens,
        "mappable": view.mappable,
        "candidates": candidates,
        "workers": [[w.name, w.host, has[w.name], w.queue_seconds, w.threads] for w in view.workers],
        "disk": disk,
        "links": links,
        "cost": {
            "prefill": {"a": prefill.a, "b": prefill.b, "c": prefill.c, "threads": prefill.threads},
            "task_seconds": cost.task_seconds,
            "map_seconds": cost.map_seconds,
            "copy_bytes_per_second": _finite(cost.copy_bytes_per_second),
            "receive_seconds_per_byte": cost.receive_seconds_per_byte,
        },
    }


def _finite(rate: float) -> float | None:
    return rate if math.isfinite(rate) else None


def world_of(told: Mapping[str, Any]) -> tuple[Edge, View]:
    """The edge and the world that :func:`seen` told: what ``roads_for`` needs. Pieces are called by their place in the path."""
    cost, prefill = told["cost"], told["cost"]["prefill"]
    path = tuple(Piece(str(i), n_tokens, nbytes) for i, (n_tokens, nbytes) in enumerate(told["pieces"]))
    workers = tuple(
        WorkerView(name, host, frozenset(map(str, has)), queue, threads)
        for name, host, has, queue, threads in told["workers"]
    )
    model = CostModel(
        PrefillCurve(prefill["a"], prefill["b"], prefill["c"], prefill["threads"]),
        DecodeCurve(0.0),
        Link(0.0, math.inf),
        cost["map_seconds"],
        cost["task_seconds"],
        {name: Link(t0, _rate(rate)) for name, (t0, rate, _) in told["links"].items()},
        _rate(cost["copy_bytes_per_second"]),
        cost["receive_seconds_per_byte"],
    )
    waits = {name: waits for name, (*_, waits) in told["links"].items()}
    view = View(
        workers,
        model,
        told["mappable"],
        frozenset(told["candidates"]),
        waits,
        frozenset(map(str, told.get("disk", ()))),
    )
    return Edge("", "", "", path, told["new_tokens"]), view


def _rate(told: float | None) -> float:
    return math.inf if told is None else told
