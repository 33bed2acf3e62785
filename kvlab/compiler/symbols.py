"""Paths as sequences of symbols: token ids, and negative numbers for what is not known before the run.

A symbol takes four bytes like a token id, so paths are compared and cut as packed ids are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kvlab.compiler.graph import Known, Piece
from kvlab.state.tokens import BYTES_PER_ID, n_ids, pack_ids


class Symbols:
    """Gives every unknown piece (an output, an end of turn) its own symbol. One instance serves one compilation."""

    def __init__(self) -> None:
        self._symbols: dict[Piece, bytes] = {}

    def of(self, pieces: Sequence[Piece]) -> bytes:
        """The symbols of ``pieces``, packed: equal prefixes mean equal tokens, whatever the outputs will be."""
        return b"".join(piece.ids if isinstance(piece, Known) else self._symbol(piece) for piece in pieces)

    def _symbol(self, piece: Piece) -> bytes:
        if piece not in self._symbols:
            self._symbols[piece] = pack_ids([-1 - len(self._symbols)])
        return self._symbols[piece]


def n_symbols(piece: Piece) -> int:
    """How many symbols a piece has: its tokens, or one if they are not known."""
    return n_ids(piece.ids) if isinstance(piece, Known) else 1


def ends_of(pieces: Sequence[Piece]) -> list[int]:
    """For each piece, the number of symbols up to its end."""
    return list(accumulate(n_symbols(piece) for piece in pieces))


def cut(pieces: Sequence[Piece], depth: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """``pieces`` before and after the first ``depth`` symbols; a known piece may be cut in two."""
    front: list[Piece] = []
    for index, piece in enumerate(pieces):
        size = n_symbols(piece)
        if size > depth:
            if depth and isinstance(piece, Known):
                at = depth * BYTES_PER_ID
                return (*front, Known(piece.ids[:at], piece.source)), (
                    Known(piece.ids[at:], piece.source),
                    *pieces[index + 1 :],
                )
            return tuple(front), tuple(pieces[index:])
        front.append(piece)
        depth -= size
    return tuple(front), ()


def shareable(pieces: Sequence[Piece]) -> int:
    """Symbols that a shared prefix may cover: at least one token known before the run must be left to feed."""
    ends = ends_of(pieces)
    return max(
        (end - 1 for end, piece in zip(ends, pieces, strict=True) if isinstance(piece, Known) and piece.ids), default=0
    )
