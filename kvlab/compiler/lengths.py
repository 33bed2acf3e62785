"""How long paths get: at least, at most, and against the positions of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvlab.compiler.graph import Known, OutputOf, Piece, RawOutputOf, TurnOf
from kvlab.compiler.prompts import Path, PromptTokenizer
from kvlab.compiler.turns import Turn
from kvlab.errors import ContextTooLong
from kvlab.state.tokens import n_ids

RETOLD = 2
"""What one model said in so many tokens another one reads in at most this many times as many: no law, but for text seldom
more, since vocabularies of language models cut it about as finely."""


class Lengths:
    """Bounds on the tokens of pieces for one model, before any output is known."""

    def __init__(self, turns: Mapping[str, Turn], tokenizer: PromptTokenizer, model: str = "") -> None:
        self._retold = {name for name, turn in turns.items() if turn.model != model}
        self._limits = {name: turn.max_tokens for name, turn in turns.items()}
        self._closing = n_ids(tokenizer.close_answer())

    def at_least(self, pieces: Iterable[Piece]) -> int:
        """Tokens of ``pieces`` if every agent stops at once, and all are skipped that may be."""
        return sum(self._bounds(piece)[0] for piece in pieces)

    def at_most(self, pieces: Iterable[Piece]) -> int:
        """Tokens of ``pieces`` if every agent generates all it may, without stopping."""
        return sum(self._bounds(piece)[1] for piece in pieces)

    def state_at_most(self, name: str, full: Iterable[Piece]) -> int:
        """Tokens with K/V after the turn of ``name``, at most: the last one it samples has none."""
        return self.at_most(full) + max(0, self._limits.get(name, 0) - 1)

    def _bounds(self, piece: Piece) -> tuple[int, int]:
        if isinstance(piece, Known):
            return n_ids(piece.ids), n_ids(piece.ids)
        if isinstance(piece, TurnOf):
            return 0, self.at_most(piece.pieces)
        limit = self._limits[piece.agent]
        if isinstance(piece, OutputOf):
            return 0, limit * RETOLD if piece.agent in self._retold else limit
        if isinstance(piece, RawOutputOf):
            return 0, limit - 1
        return max(1, self._closing), 1 + self._closing


def check_lengths(
    turns: Mapping[str, Turn], paths: Mapping[str, Path], lengths: Lengths, max_positions: int
) -> list[str]:
    """Warnings for agents that may run out of positions, if others answer at full length.

    Raises
    ------
    ContextTooLong
        For an agent that cannot fit whatever the others answer: its prompt and its own ``max_new_tokens`` need more
        than ``max_positions`` tokens. Names it, what it needs and what there is.
    """
    warnings = []
    for name, turn in turns.items():
        if turn.generation is None:
            continue
        own = turn.generation.max_new_tokens
        full = paths[name].full
        least, most = lengths.at_least(full) + own, lengths.at_most(full) + own
        if least > max_positions:
            room = max_positions - (least - own)
            raise ContextTooLong(
                f"agent {name!r} needs at least {least:,} positions ({least - own:,} of prompt, {own:,} new tokens), "
                f"and the model has {max_positions:,}",
                hint=f"set its max_new_tokens to at most {room:,}" if room > 0 else "shorten what it reads",
                agent=name,
                need=least,
                have=max_positions,
            )
        if most > max_positions:
            warnings.append(
                f"agent {name!r} may run out of positions: at full length of the answers it reads it needs {most:,}, "
                f"and the model has {max_positions:,}; lower their max_new_tokens to be safe"
            )
    return warnings
