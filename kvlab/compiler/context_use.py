"""Contexts that are not used, or stand where their K/V cannot be: K/V depends on everything before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvlab.compiler.graph import Known, Piece, flat
from kvlab.compiler.prompts import CONTEXT_SOURCE, Path
from kvlab.compiler.symbols import Symbols
from kvlab.compiler.turns import Turn
from kvlab.state.tokens import n_ids
from kvlab.workflow.definitions import ContextPart


@dataclass(frozen=True, slots=True)
class LostContext:
    """A context that ``agent`` has to prefill although another turn has its K/V after another beginning.

    ``served`` is one of the turns whose beginning is the usual one.
    """

    agent: str
    context: str
    n_tokens: int
    because: str
    advice: str
    served: str

    @property
    def warning(self) -> str:
        """For people."""
        return (
            f"agent {self.agent!r}: the {self.n_tokens:,} tokens of context {self.context!r} are prefilled again, "
            f"because {self.because}; {self.advice}"
        )


@dataclass(frozen=True, slots=True)
class _Use:
    agent: str
    beginning: bytes
    index: int
    n_tokens: int


def lost_contexts(
    turns: Mapping[str, Turn], paths: Mapping[str, Path], symbols: Symbols, min_shared_tokens: int
) -> list[LostContext]:
    """Uses of a context of at least ``min_shared_tokens`` that share its text, but not its state, with others."""
    uses: dict[str, list[_Use]] = {}
    for context, use in _uses(paths, symbols):
        uses.setdefault(context, []).append(use)
    lost = []
    for context, here in uses.items():
        beginnings: dict[bytes, list[_Use]] = {}
        for use in here:
            beginnings.setdefault(use.beginning, []).append(use)
        usual = max(beginnings.values(), key=len)
        for use in here:
            if use not in usual and use.n_tokens >= min_shared_tokens:
                because, advice = _reason(turns[use.agent], paths[use.agent], context, use, turns[usual[0].agent])
                lost.append(LostContext(use.agent, context, use.n_tokens, because, advice, usual[0].agent))
    return lost


def unused_contexts(contexts: Mapping[str, object], turns: Mapping[str, Turn]) -> list[str]:
    """Warnings for contexts that no agent and no tool reads."""
    read = {part.context for turn in turns.values() for part in turn.parts if isinstance(part, ContextPart)}
    return [f"context {name!r} is not read by any agent" for name in contexts if name not in read]


def _uses(paths: Mapping[str, Path], symbols: Symbols) -> Iterator[tuple[str, _Use]]:
    for agent, path in paths.items():
        for index, piece in enumerate(path.own):
            context = _context(piece)
            if context is not None and isinstance(piece, Known):
                beginning = symbols.of((*path.before, *path.own[: index + 1]))
                yield context, _Use(agent, beginning, index, n_ids(piece.ids))


def _reason(turn: Turn, path: Path, context: str, use: _Use, usual: Turn) -> tuple[str, str]:
    if any(_context(piece) == context for piece in flat((*path.before, *path.own[: use.index]))):
        return "it is already in that conversation", "leave it out there"
    if turn.continues is not None:
        return (
            f"it comes after the conversation of {turn.continues!r}",
            "put it first in the turn that starts the conversation",
        )
    first_text = next(
        i for i, piece in enumerate(path.own) if not (isinstance(piece, Known) and piece.source == "template")
    )
    if use.index > first_text:
        return "other text comes before it", "put it first"
    if usual.continues is None and turn.role != usual.role:
        return f"its role= is not that of {usual.name!r}", "give both the same role=, or put the role after the context"
    return f"for {usual.name!r} it does not come first", "put it first in both"


def _context(piece: Piece) -> str | None:
    if isinstance(piece, Known) and piece.source.startswith(CONTEXT_SOURCE):
        return piece.source.removeprefix(CONTEXT_SOURCE)
    return None
