"""Finding the longest known prefix of a sequence of token ids: a radix tree over packed ids.

The tree compares ids, not digests, so a hit is a hit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvlab.state.tokens import BYTES_PER_ID, common_prefix


@dataclass(slots=True)
class _Node:
    edge: bytes = b""
    children: dict[bytes, _Node] = field(default_factory=dict)
    values: dict[str, None] = field(default_factory=dict)


class PrefixTree:
    """Maps packed token-id paths to names, and finds the longest stored path that is a prefix of a query."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, path: bytes, name: str) -> None:
        """Store ``name`` at ``path``. Several names may lie at one path."""
        node, rest = self._root, path
        while rest:
            head = rest[:BYTES_PER_ID]
            child = node.children.get(head)
            if child is None:
                child = node.children[head] = _Node(rest)
                node, rest = child, b""
                break
            equal = common_prefix(child.edge, rest) * BYTES_PER_ID
            if equal < len(child.edge):
                lower = _Node(child.edge[equal:], child.children, child.values)
                child = node.children[head] = _Node(child.edge[:equal], {lower.edge[:BYTES_PER_ID]: lower})
            node, rest = child, rest[equal:]
        node.values[name] = None

    def remove(self, path: bytes, name: str) -> None:
        """Forget ``name`` at ``path``; unknown names are ignored. Branches left empty are cut off."""
        trail: list[tuple[_Node, bytes]] = []
        node, rest = self._root, path
        while rest:
            head = rest[:BYTES_PER_ID]
            child = node.children.get(head)
            if child is None or not rest.startswith(child.edge):
                return
            trail.append((node, head))
            node, rest = child, rest[len(child.edge) :]
        node.values.pop(name, None)
        while trail and not node.values and not node.children:
            parent, head = trail.pop()
            del parent.children[head]
            node = parent

    def longest(self, query: bytes) -> tuple[int, tuple[str, ...]]:
        """Length in tokens of the longest stored prefix of ``query``, and the names stored there."""
        node, rest, depth = self._root, query, 0
        best: tuple[int, tuple[str, ...]] = (0, tuple(node.values))
        while rest:
            child = node.children.get(rest[:BYTES_PER_ID])
            if child is None or not rest.startswith(child.edge):
                break
            node, rest = child, rest[len(child.edge) :]
            depth += len(child.edge) // BYTES_PER_ID
            if node.values:
                best = (depth, tuple(node.values))
        return best

    def overlap(self, query: bytes) -> int:
        """Tokens of ``query`` that agree with *some* stored path, even if nothing is stored at that very point."""
        node, rest, depth = self._root, query, 0
        while rest:
            child = node.children.get(rest[:BYTES_PER_ID])
            if child is None:
                break
            equal = common_prefix(child.edge, rest)
            depth += equal
            if equal * BYTES_PER_ID < len(child.edge):
                break
            node, rest = child, rest[equal * BYTES_PER_ID :]
        return depth
