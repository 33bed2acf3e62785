"""What a run's record is told of its decisions, as events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvlab.cost.roads import Alternative
from kvlab.cost.seen import seen
from kvlab.runtime.turns import describe_alternative
from kvlab.store.events import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvlab.compiler.graph import StateEdge
    from kvlab.cost.decide import Decision
    from kvlab.runtime.hub import Hub
    from kvlab.state.records import StateRecord


def tell_decision(hub: Hub, run: str, source: str, target: str, decision: Decision) -> None:
    """It was decided how the state of ``source`` is served to ``target``."""
    chosen = decision.chosen
    told = _told(source, target, decision.edge.n_tokens, decision.alternatives, chosen, decision.reason)
    detail = {**told, "policy": decision.policy, "seen": seen(decision)}
    hub.emit(Kind.DECISION, run, edge=f"{source}→{target}", agent=target, n_tokens=told["n_tokens"], detail=detail)


def tell_refused(hub: Hub, run: str, edge: StateEdge, state: StateRecord, decision: Decision) -> None:
    """``state`` is of another model or namespace than who goes on: its text is prefilled, there is no other road."""
    recompute = replace(decision.chosen, how="recompute")
    refused = Alternative("transfer", recompute.worker, {}, state.nbytes, excluded=edge.recompute_because)
    because = edge.recompute_because or ""
    told = _told(edge.source, edge.target, state.n_tokens, (recompute, refused), recompute, because)
    detail = {**told, "policy": decision.policy, "fields": list(edge.fields)}
    name = f"{edge.source}→{edge.target}"
    hub.emit(Kind.DECISION, run, edge=name, agent=edge.target, n_tokens=state.n_tokens, detail=detail)


def _told(
    source: str, target: str, n_tokens: int, roads: Sequence[Alternative], chosen: Alternative, reason: str
) -> dict[str, Any]:
    return {
        "source": source,
        "target": target,
        "n_tokens": n_tokens,
        "alternatives": [describe_alternative(one) for one in roads],
        "chosen": chosen.how,
        "worker": chosen.worker,
        "reason": reason,
    }
