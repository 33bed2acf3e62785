"""One decision: for a state edge, which worker and which road. A plain function of an edge and a view of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvlab.cost.roads import CARRIES, MOVES_LEAST, Alternative, again_tokens, roads_for
from kvlab.cost.world import Edge, View


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """All alternatives, the chosen one, why in one sentence, the policy that chose, and the world that it chose in."""

    edge: Edge
    view: View
    alternatives: tuple[Alternative, ...]
    chosen: Alternative
    reason: str
    policy: str = "cheapest"

    def __repr__(self) -> str:
        from kvlab.display.decision_text import decision_line

        return f"<decision {decision_line(self)}; {len(self.alternatives)} alternatives>"

    def __str__(self) -> str:
        from kvlab.display.decision_text import decision_text

        return decision_text(self)

    def _repr_html_(self) -> str:
        from kvlab.display.decision_text import decision_as_html

        return decision_as_html(self)


class Policy(Protocol):
    """How one of the possible roads is chosen."""

    @property
    def name(self) -> str:
        """As people write it."""
        ...

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:
        """Those of ``ranked`` (possible, best first, never empty) that it would take; none if it has no opinion."""
        ...


class Cheapest:
    """The least predicted time to the first token."""

    name = "cheapest"

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:  # noqa: ARG002 - a policy
        """All of them."""
        return ranked


CHEAPEST = Cheapest()


def decide(edge: Edge, view: View, policy: Policy = CHEAPEST) -> Decision:
    """The alternative with the least predicted time to the first token that ``policy`` allows; a tie moves least.

    Where a policy wants a road that no worker has, the cheapest is taken and the reason says so.

    Raises
    ------
    ValueError
        If ``view`` has no worker that may be chosen.
    """
    found = roads_for(edge, view)
    ranked = sorted(
        (one for one in found if one.excluded is None),
        key=lambda one: (one.seconds, MOVES_LEAST.index(one.how), one.worker),
    )
    if not ranked:
        msg = f"edge {edge.id}: no worker to decide for"
        raise ValueError(msg)
    allowed = policy.allowed(edge, ranked) if edge.path else ranked
    chosen = allowed[0] if allowed else ranked[0]
    reason = _reason(edge, chosen, [one for one in ranked if one is not chosen])
    if not allowed:
        reason = f"{policy.name} has no road here. {reason}"
    elif chosen is not ranked[0]:
        reason = f"{policy.name}: {reason}"
    return Decision(edge, view, found, chosen, reason, policy.name)


def _tokens(n: int) -> str:
    return f"{n} token{'' if n == 1 else 's'}"


def _tokens_are(n: int) -> str:
    return f"{_tokens(n)} {'is' if n == 1 else 'are'}"


def _reason(edge: Edge, chosen: Alternative, others: Sequence[Alternative]) -> str:
    if not edge.path:
        return f"nothing to reuse: prefill {_tokens(edge.new_tokens)} on {chosen.worker}"
    wanted = ("recompute",) if chosen.how in CARRIES else CARRIES
    rivals = [other for other in others if other.how in wanted] or [o for o in others if o.how != chosen.how]
    mebibytes = f"{chosen.nbytes / 2**20:.1f} MiB"
    said = {
        "in place": f"{_tokens_are(edge.n_tokens)} already on {chosen.worker}",
        "map": f"{_tokens_are(chosen.missing_tokens)} on the same host as {chosen.worker}: mapped, no bytes move",
        "transfer": f"{mebibytes} go to {chosen.worker}",
        "restore": f"{mebibytes} are read back from disk on {chosen.worker}"
        + (f" and {_tokens(again_tokens(edge, chosen))} prefilled again" if chosen.again else ""),
        "hybrid": f"{again_tokens(edge, chosen)} of {_tokens(chosen.missing_tokens)} are prefilled again on "
        f"{chosen.worker} while {mebibytes} of the rest arrive",
        "recompute": f"{_tokens_are(again_tokens(edge, chosen))} prefilled again on {chosen.worker}",
    }[chosen.how]
    if not rivals:
        return f"{said}; there is no other road"
    rival = rivals[0]
    return f"{said}: {_ms(chosen.seconds)} against {_ms(rival.seconds)} for {rival.how} on {rival.worker} (predicted)"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
