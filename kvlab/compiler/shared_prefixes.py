"""Which beginnings of paths are computed once: branching points shared by two or more turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvlab.compiler.graph import Known, Piece
from kvlab.compiler.prompts import CONTEXT_SOURCE
from kvlab.compiler.symbols import Symbols, cut, ends_of, shareable
from kvlab.state.tokens import BYTES_PER_ID, common_prefix


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A beginning that several turns have in common, on top of the state they all start from.

    Attributes
    ----------
    pieces
        All of it, from that state.
    depth
        Its length in symbols.
    below
        Index, in the list it stands in, of the shared prefix that it extends, or None.
    members
        Names of the turns that start with it.
    context
        The context it ends with, or None.
    """

    pieces: tuple[Piece, ...]
    depth: int
    below: int | None
    members: tuple[str, ...]
    context: str | None


def shared_prefixes(
    own: Mapping[str, Sequence[Piece]],
    weigh: Callable[[Sequence[Piece]], int],
    min_shared_tokens: int,
    symbols: Symbols,
) -> list[SharedPrefix]:
    """Shared beginnings among turns that start from one state, each after the one it extends.

    A radix tree over symbols, built by splitting groups at their common prefix: a branching point becomes a shared
    prefix if it adds at least ``min_shared_tokens`` to the one below it. One that lies fewer than that behind the end
    of a context is moved back to the context's end, so that the same state serves other questions on it.

    Parameters
    ----------
    own
        What each turn feeds on top of that state.
    weigh
        Tokens of pieces.
    """
    encoded = {name: symbols.of(pieces)[: shareable(pieces) * BYTES_PER_ID] for name, pieces in own.items()}
    found: list[SharedPrefix] = []
    groups: deque[tuple[tuple[str, ...], int | None]] = deque([(tuple(own), None)])
    while groups:
        members, below = groups.popleft()
        if len(members) < 2:
            continue
        first = encoded[members[0]]
        reach = min(common_prefix(first, encoded[name]) for name in members[1:])
        pieces = own[members[0]]
        start = 0 if below is None else found[below].depth
        for depth, context in _branching_points(pieces, reach, weigh, min_shared_tokens):
            front = cut(pieces, depth)[0]
            if depth > start and weigh(cut(front, start)[1]) >= min_shared_tokens:
                found.append(SharedPrefix(front, depth, below, members, context))
                below = len(found) - 1
                break
        branches: dict[bytes, list[str]] = {}
        for name in members:
            following = encoded[name][reach * BYTES_PER_ID : (reach + 1) * BYTES_PER_ID]
            if following:
                branches.setdefault(following, []).append(name)
        groups.extend((tuple(names), below) for names in branches.values())
    return found


def _branching_points(
    pieces: Sequence[Piece], reach: int, weigh: Callable[[Sequence[Piece]], int], min_shared_tokens: int
) -> list[tuple[int, str | None]]:
    """Where the shared prefix may end, best first: a near end of a whole context, with its name, and ``reach``."""
    ends = ends_of(pieces)
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if isinstance(piece, Known) and piece.source.startswith(CONTEXT_SOURCE) and ends[index] <= reach:
            end = ends[index]
            if index + 1 < len(pieces) and ends[index + 1] <= reach and _is_template(pieces[index + 1]):
                end = ends[index + 1]
            if end == reach or weigh(cut(cut(pieces, reach)[0], end)[1]) < min_shared_tokens:
                return [(end, piece.source.removeprefix(CONTEXT_SOURCE)), (reach, None)]
            break
    return [(reach, None)]


def _is_template(piece: Piece) -> bool:
    return isinstance(piece, Known) and piece.source == "template"
