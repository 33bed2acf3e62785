"""The life of a state, and the changes that are allowed in it."""

from __future__ import annotations

from enum import StrEnum

from kvlab.errors import IllegalTransition


class Phase(StrEnum):
    """Where a state is in its life."""

    PLANNED = "planned"
    MATERIALIZED = "materialized"
    RESIDENT = "resident"
    IN_TRANSIT = "in transit"
    SPILLED = "spilled"
    EVICTABLE = "evictable"
    EVICTED = "evicted"


ALLOWED: dict[Phase, frozenset[Phase]] = {
    Phase.PLANNED: frozenset({Phase.MATERIALIZED, Phase.EVICTED}),
    Phase.MATERIALIZED: frozenset({Phase.RESIDENT}),
    Phase.RESIDENT: frozenset({Phase.IN_TRANSIT, Phase.SPILLED, Phase.EVICTABLE}),
    Phase.IN_TRANSIT: frozenset({Phase.RESIDENT, Phase.EVICTED}),
    Phase.SPILLED: frozenset({Phase.RESIDENT, Phase.EVICTED}),
    Phase.EVICTABLE: frozenset({Phase.RESIDENT, Phase.SPILLED, Phase.EVICTED}),
    Phase.EVICTED: frozenset({Phase.PLANNED}),
}
"""An evicted state that is used again is planned again: it comes back by the cheapest road, or raises."""


def advance(state: str, now: Phase, then: Phase) -> Phase:
    """``then``, if a state in phase ``now`` may go there.

    Raises
    ------
    IllegalTransition
        Naming the state, both phases and what would have been allowed.
    """
    if then not in ALLOWED[now]:
        allowed = ", ".join(sorted(ALLOWED[now]))
        raise IllegalTransition(
            f"state {state} is {now} and cannot become {then}",
            hint=f"from {now} a state can become: {allowed}",
            state=state,
            now=str(now),
            then=str(then),
        )
    return then
