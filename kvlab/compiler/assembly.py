"""Nodes from paths and shared prefixes, and the edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvlab.compiler.context_use import LostContext
from kvlab.compiler.graph import Call, DataEdge, Known, Node, OutputOf, Piece, RawOutputOf, StateEdge, flat
from kvlab.compiler.lengths import Lengths
from kvlab.compiler.prompts import Path, Spoken
from kvlab.compiler.shared_prefixes import SharedPrefix, shared_prefixes
from kvlab.compiler.symbols import Symbols, cut
from kvlab.compiler.turns import Turn
from kvlab.state.compatibility import differences, told
from kvlab.state.identity import Sampling
from kvlab.workflow.definitions import AnswerPart, ContextDefinition, ContextPart, Part, ToolDefinition


@dataclass(frozen=True, slots=True)
class Placed:
    """A shared prefix under its node id; ``before`` is the path of the state that all its members start from."""

    realm: tuple[str, str]
    id: str
    prefix: SharedPrefix
    below: str | None
    before: tuple[Piece, ...]


def place_prefixes(
    turns: Mapping[str, Turn],
    paths: Mapping[str, Path],
    lengths: Mapping[str, Lengths],
    min_shared_tokens: Mapping[str, int],
    symbols: Symbols,
) -> list[Placed]:
    """The shared prefixes of all turns, those that start from the root first, each under a unique id.

    A turn that may be skipped shares none: nothing is computed for it before that is known.
    """
    starts: dict[tuple[tuple[str, str], str | None], list[str]] = {(("", ""), None): []}
    for turn in turns.values():
        if turn.generates and turn.unless is None:
            starts.setdefault((turn.realm, turn.start), []).append(turn.name)
    placed: list[Placed] = []
    taken: dict[str, int] = {}
    for (realm, start), names in starts.items():
        own = {name: paths[name].own for name in names}
        ids: list[str] = []
        for prefix in shared_prefixes(own, lengths[realm[0]].at_most, min_shared_tokens[realm[0]], symbols):
            kind = f"context:{prefix.context}" if prefix.context is not None else "prefix"
            taken[kind] = taken.get(kind, 0) + 1
            ids.append(
                f"prefix:{taken[kind]}" if kind == "prefix" else kind if taken[kind] == 1 else f"{kind}#{taken[kind]}"
            )
            below = start if prefix.below is None else ids[prefix.below]
            placed.append(Placed(realm, ids[-1], prefix, below, paths[names[0]].before))
    return placed


def nodes_of(
    turns: Mapping[str, Turn],
    contexts: Mapping[str, ContextDefinition],
    paths: Mapping[str, Path],
    placed: Sequence[Placed],
) -> tuple[Node, ...]:
    """All nodes, each after those it waits for: a shared prefix comes just before the first turn that needs it."""
    by_id = {place.id: place for place in placed}
    deepest: dict[str, Placed] = {}
    for place in placed:
        for name in place.prefix.members:
            deepest[name] = place
    nodes: dict[str, Node] = {}
    for turn in turns.values():
        under = deepest.get(turn.name)
        for place in _chain(under, by_id):
            if place.id not in nodes:
                nodes[place.id] = _materialize(place, by_id)
        tool = turn.tool
        nodes[turn.name] = (
            _turn_node(turn, paths[turn.name], under) if tool is None else _tool_node(turn, tool, turns, contexts)
        )
    return tuple(nodes.values())


def data_edges_of(nodes: Sequence[Node]) -> tuple[DataEdge, ...]:
    """E_d: whose text enters whose prompt."""
    return tuple(DataEdge(source, node.id) for node in nodes for source in node.data_parents)


def state_edges_of(
    nodes: Sequence[Node],
    turns: Mapping[str, Turn],
    lengths: Mapping[str, Lengths],
    lost: Sequence[LostContext],
    models: Mapping[str, Spoken],
) -> tuple[StateEdge, ...]:
    """E_s: the state each node starts from, and states it cannot use although it reads the same text."""
    by_id = {node.id: node for node in nodes}
    order = {node.id: index for index, node in enumerate(nodes)}
    size = {node.id: lengths[node.model].state_at_most(node.id, node.full_pieces) for node in nodes}
    edges: list[StateEdge] = []
    for node in nodes:
        if node.parent is not None:
            edges.append(StateEdge(node.parent, node.id, size[node.parent]))
        parent = turns[node.id].continues if node.id in turns else None
        if parent is not None and turns[parent].realm != (node.model, node.namespace):
            refusal, fields = _refusal(turns[parent].realm, (node.model, node.namespace), models)
            edges.append(StateEdge(parent, node.id, size[parent], refusal, fields))
        given_up: dict[str, StateEdge] = {}
        if node.kind == "merge":
            turn = turns[node.id]
            because = (
                None
                if not turn.generates
                else "K/V of different continuations cannot be joined exactly; its text is read"
            )
            told_of = {edge.source for edge in edges if edge.target == node.id}
            edges += [StateEdge(name, node.id, size[name], because) for name in turn.branches if name not in told_of]
        for loss in lost:
            source = _context_node(by_id[loss.served], loss.context, by_id) if loss.agent == node.id else None
            if source is not None and source != node.parent and order[source] < order[node.id]:
                given_up.setdefault(source, StateEdge(source, node.id, loss.n_tokens, loss.because))
        edges += given_up.values()
    return tuple(edges)


def _refusal(have: tuple[str, str], want: tuple[str, str], models: Mapping[str, Spoken]) -> tuple[str, tuple[str, ...]]:
    """Why a state of one model and namespace cannot be used in another, and the fields that differ."""
    because: list[str] = []
    fields: list[str] = []
    if have[0] != want[0]:
        mine, theirs = models[have[0]], models[want[0]]
        found = differences(mine.identity, mine.config, theirs.identity, theirs.config)
        because.append(f"{mine.identity.name}'s state cannot be used by {theirs.identity.name}: {told(found)}")
        fields += found
    if have[1] != want[1]:
        named = [f"namespace {one!r}" if one else "the run's own namespace" for one in (have[1], want[1])]
        because.append(f"a state of {named[0]} cannot be used in {named[1]}")
        fields.append("namespace")
    return "; ".join(because), tuple(fields)


def _heard(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Whose answers are in ``pieces``, as text or as the ids that they were."""
    return tuple(dict.fromkeys(one.agent for one in flat(pieces) if isinstance(one, OutputOf | RawOutputOf)))


def siblings_of(nodes: Sequence[Node]) -> tuple[tuple[str, ...], ...]:
    """Groups of two or more turns that start from one state and become ready together; none that may be skipped."""
    groups: dict[tuple[str, frozenset[str]], list[str]] = {}
    for node in nodes:
        if node.kind == "resume" and node.parent is not None and node.unless is None:
            groups.setdefault((node.parent, frozenset(node.waits_for)), []).append(node.id)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _chain(place: Placed | None, by_id: Mapping[str, Placed]) -> list[Placed]:
    """From the shared prefix nearest to the start up to ``place``."""
    chain: list[Placed] = []
    while place is not None:
        chain.append(place)
        place = by_id.get(place.below) if place.below is not None else None
    return chain[::-1]


def _materialize(place: Placed, by_id: Mapping[str, Placed]) -> Node:
    prefix = place.prefix
    lower = _chain(place, by_id)[:-1]
    pieces = cut(prefix.pieces, lower[-1].prefix.depth if lower else 0)[1]
    return Node(
        id=place.id,
        kind="materialize",
        lane=prefix.context if prefix.context is not None else place.id,
        parent=place.below,
        pieces=pieces,
        full_pieces=place.before + prefix.pieces,
        sampling=Sampling(0, branch=place.id),
        data_parents=_heard(pieces),
        model=place.realm[0],
        namespace=place.realm[1],
    )


def _turn_node(turn: Turn, path: Path, under: Placed | None) -> Node:
    generation = turn.generation
    sampling = Sampling(0, branch=f"{turn.name}/0")
    if generation is not None:
        sampling = Sampling(generation.max_new_tokens, generation.temperature, generation.seed, f"{turn.name}/0")
    return Node(
        id=turn.name,
        kind="merge" if turn.branches else "resume",
        lane=turn.name,
        parent=under.id if under is not None else turn.start,
        pieces=cut(path.own, under.prefix.depth)[1] if under is not None else path.own,
        full_pieces=path.full,
        sampling=sampling,
        data_parents=_heard(path.own),
        unless=turn.unless,
        model=turn.model,
        namespace=turn.namespace,
    )


def _tool_node(
    turn: Turn, tool: ToolDefinition, turns: Mapping[str, Turn], contexts: Mapping[str, ContextDefinition]
) -> Node:
    def given(part: Part) -> str | OutputOf:
        if isinstance(part, AnswerPart):
            return OutputOf(turns[part.agent].speaker)
        return contexts[part.context].text if isinstance(part, ContextPart) else part.text

    call = Call(tool.call, tuple(map(given, turn.parts)), tool.pause_seconds, tool.hold_seconds, tool.max_tokens)
    return Node(
        id=turn.name,
        kind="tool",
        lane=turn.name,
        parent=None,
        pieces=(),
        full_pieces=(),
        sampling=Sampling(0, branch=turn.name),
        data_parents=tuple(dict.fromkeys(one.agent for one in call.given if isinstance(one, OutputOf))),
        tool=call,
    )


def _context_node(node: Node, context: str, by_id: Mapping[str, Node]) -> str | None:
    """The materialized prefix below ``node`` that holds ``context``, if there is one."""
    current: Node | None = node
    while current is not None:
        if current.kind == "materialize" and any(
            isinstance(piece, Known) and piece.source == f"context:{context}" for piece in current.pieces
        ):
            return current.id
        current = by_id.get(current.parent) if current.parent is not None else None
    return None
