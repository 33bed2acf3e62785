"""Where nodes stand: lanes are agents, x is the length of the longest path. Adding a node moves no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvlab.display.drawing import layers


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
        Lane → its number, in the order of their first node.
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
        """Place every node of a compiled graph, sources first."""
        pairs = [(edge["source"], edge["target"]) for edge in (*document["state_edges"], *document["data_edges"])]
        sources: dict[str, list[str]] = {}
        for source, target in pairs:
            sources.setdefault(target, []).append(source)
        nodes = {node["id"]: node for node in document["nodes"]}
        for node in document["nodes"]:
            self.lanes.setdefault(node["lane"], len(self.lanes))
        depth = layers(nodes, pairs)
        for name in sorted(nodes, key=depth.__getitem__):
            self.place(name, nodes[name]["lane"], sources.get(name, ()))
