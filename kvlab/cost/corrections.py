"""What edges really cost corrects what was calibrated: a factor for each link, for prefill, and for overhead. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvlab.cost.model import CostModel, Link

WEIGHT = 0.3
"""Of a new observation against all before it."""
BOUND = 4.0
"""No single observation counts for more than this factor, or less than its inverse."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Factors on predicted seconds. Immutable: observing gives new ones."""

    prefill: float = 1.0
    overhead: float = 1.0
    links: Mapping[str, float] = field(default_factory=dict)

    def saw_prefill(self, predicted: float, actual: float) -> Corrections:
        """A prefill took ``actual`` seconds where the model in use (corrected so far) predicted ``predicted``."""
        return replace(self, prefill=_moved(self.prefill, predicted, actual))

    def saw_overhead(self, predicted: float, actual: float) -> Corrections:
        """Tasks around the work took ``actual`` seconds where the model in use predicted ``predicted``."""
        return replace(self, overhead=_moved(self.overhead, predicted, actual))

    def saw_link(self, link: str, predicted: float, actual: float) -> Corrections:
        """Bytes took ``actual`` seconds over ``link``, predicted by the model in use."""
        return replace(self, links={**self.links, link: _moved(self.links.get(link, 1.0), predicted, actual)})

    def applied(self, cost: CostModel) -> CostModel:
        """``cost`` with every factor on its place."""
        curve, factor = cost.prefill, self.prefill
        prefill = replace(curve, a=curve.a * factor, b=curve.b * factor, c=curve.c * factor)
        links = dict(cost.links)
        for name, factor in self.links.items():
            link = links.get(name, cost.frames)
            links[name] = Link(link.t0 * factor, link.bytes_per_second / factor, link.cold)
        return replace(cost, prefill=prefill, links=links, task_seconds=cost.task_seconds * self.overhead)


def _moved(factor: float, predicted: float, actual: float) -> float:
    if predicted <= 0 or actual <= 0:
        return factor
    seen = min(BOUND, max(1 / BOUND, actual / predicted))
    return factor * (1 - WEIGHT + WEIGHT * seen)
