"""What edges really cost corrects what was calibrated: a factor for each link, for prefill, and for overhead. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvlab.cost.model import CostModel, Link

WEIGHT = 0.3
"""Of a new observation against all before it."""
BOUND = 4.0
"""No single observation counts for more than this times the factor before it, or less than its inverse."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Factors on what was calibrated. Immutable: observing gives new ones.

    What is observed is compared with what was calibrated, never with a prediction that has factors in it: of eight edges
    that were decided at once each would move the factor by the same error once more.
    """

    prefill: float = 1.0
    overhead: float = 1.0
    links: Mapping[str, float] = field(default_factory=dict)

    def saw_prefill(self, calibrated: float, actual: float) -> Corrections:
        """A prefill took ``actual`` seconds where the calibrated model says ``calibrated``."""
        return replace(self, prefill=_moved(self.prefill, calibrated, actual))

    def saw_overhead(self, calibrated: float, actual: float) -> Corrections:
        """Tasks around the work took ``actual`` seconds where the calibrated model says ``calibrated``."""
        return replace(self, overhead=_moved(self.overhead, calibrated, actual))

    def saw_link(self, link: str, calibrated: float, actual: float) -> Corrections:
        """Bytes took ``actual`` seconds over ``link``, where the calibrated model says ``calibrated``."""
        return replace(self, links={**self.links, link: _moved(self.links.get(link, 1.0), calibrated, actual)})

    def applied(self, cost: CostModel) -> CostModel:
        """``cost`` with every factor on its place."""
        curve, factor = cost.prefill, self.prefill
        prefill = replace(curve, a=curve.a * factor, b=curve.b * factor, c=curve.c * factor)
        links = dict(cost.links)
        for name, factor in self.links.items():
            source, _, target = name.partition("→")
            link = cost.link(source, target)
            links[name] = Link(link.t0 * factor, link.bytes_per_second / factor, link.cold)
        return replace(cost, prefill=prefill, links=links, task_seconds=cost.task_seconds * self.overhead)


def _moved(factor: float, calibrated: float, actual: float) -> float:
    if calibrated <= 0 or actual <= 0:
        return factor
    seen = min(BOUND * factor, max(factor / BOUND, actual / calibrated))
    return (1 - WEIGHT) * factor + WEIGHT * seen
