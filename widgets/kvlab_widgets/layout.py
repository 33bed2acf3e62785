"""Where nodes stand: lanes are agents, x is the length of the longest path. Adding a node moves no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvlab.display.drawing import layers

SWEEPS = 8
"""Rounds of ordering lanes; those of workflows settle in fewer."""

WORTH = 0.75
"""Lanes leave their author's order only if edges become shorter than this share of what they were."""


class Place(NamedTuple):
    """A node's column and its lane's number, both from 0."""

    x: int
    lane: int


@dataclass(slots=True)
class Layout:
    """Places given so far.

    Attributes
    ----------
    lanes
        Lane → its number: as :func:`ordered` for those of a compiled graph, then in the order of their first node.
    places
        Node → its place.
    """

    lanes: dict[str, int] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    _end: dict[int, int] = field(default_factory=dict)

    def place(self, node: str, lane: str, sources: Iterable[str]) -> Place:
        """The place of ``node``: behind all its sources and behind whatever its lane has. Given once, kept for good."""
        if node in self.places:
            return self.places[node]
        number = self.lanes.setdefault(lane, len(self.lanes))
        behind = max((self.places[source].x for source in sources if source in self.places), default=-1)
        found = Place(max(behind, self._end.get(number, -1)) + 1, number)
        self.places[node] = found
        self._end[number] = found.x
        return found

    def place_graph(self, document: Mapping[str, Any]) -> None:
        """Place every node of a compiled graph, sources first, in lanes ordered so that edges are short."""
        pairs = [(edge["source"], edge["target"]) for edge in (*document["state_edges"], *document["data_edges"])]
        sources: dict[str, list[str]] = {}
        for source, target in pairs:
            sources.setdefault(target, []).append(source)
        lane_of = {node["id"]: node["lane"] for node in document["nodes"]}
        depth = layers(lane_of, pairs)
        between = Counter(
            (lane_of[source], lane_of[target]) for source, target in pairs if source in lane_of and target in lane_of
        )
        for lane in ordered(tuple(dict.fromkeys(lane_of.values())), between):
            self.lanes.setdefault(lane, len(self.lanes))
        for name in sorted(lane_of, key=depth.__getitem__):
            self.place(name, lane_of[name], sources.get(name, ()))


def ordered(lanes: Sequence[str], edges: Mapping[tuple[str, str], int]) -> list[str]:
    """``lanes`` in an order in which edges cross few of them: the best of a few barycenter sweeps.

    The given order stays if that is not worth it (:data:`WORTH`): it is the one that its author has in mind.

    Parameters
    ----------
    edges
        (lane of a source, lane of a target) → how many edges join them.
    """
    near: dict[str, Counter[str]] = {lane: Counter() for lane in lanes}
    for (one, other), n in edges.items():
        if one != other:
            near[one][other] += n
            near[other][one] += n

    def length(order: Sequence[str]) -> int:
        at = {lane: i for i, lane in enumerate(order)}
        return sum(n * abs(at[one] - at[other]) for (one, other), n in edges.items())

    def swept(order: Sequence[str]) -> list[str]:
        at = {lane: float(i) for i, lane in enumerate(order)}
        # A lane counts for itself too, else two that only know each other change places for ever.
        return sorted(
            order,
            key=lambda lane: (
                (at[lane] + sum(n * at[other] for other, n in near[lane].items())) / (1 + near[lane].total())
            ),
        )

    order, tried = list(lanes), []
    for _ in range(SWEEPS):
        order = swept(order)
        tried.append(order)
    best = min(tried, key=length)
    if length(best) >= WORTH * length(lanes):
        return list(lanes)
    at = {lane: i for i, lane in enumerate(best)}
    down = sum(n * (at[other] - at[one]) for (one, other), n in edges.items())
    return best if down >= 0 else best[::-1]  # work begins at the top
