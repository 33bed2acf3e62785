"""From turns to pieces: what each agent's conversation says from the root, before anything has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvlab.compiler.graph import EndOfTurn, Known, OutputOf, Piece, RawOutputOf, TurnOf
from kvlab.compiler.turns import Turn
from kvlab.errors import GraphError, KVLabError
from kvlab.workflow.definitions import AnswerPart, ContextDefinition, ContextPart, Part

CONTEXT_SOURCE = "context:"
"""Begins the ``source`` of a context's piece; the context's name follows."""


class PromptTokenizer(Protocol):
    """Turns the parts of prompts into packed int32 ids. All methods are pure functions of their arguments."""

    @property
    def separator(self) -> bytes:
        """Ids of a blank line tokenized alone: between the parts of one user turn."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation."""

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that no user text can become."""

    @property
    def vocabulary(self) -> int:
        """Number of ids."""

    @property
    def max_positions(self) -> int:
        """Longest path the model has positions for, in tokens."""

    def text_ids(self, text: str) -> bytes:
        """Ids of a user's text, tokenized alone: never a control id."""

    def root_ids(self) -> bytes:
        """What a path of raw text starts with."""

    def open_conversation(self, role: str | None) -> bytes:
        """From the root to where the first user text starts; ``role`` is the text of the system turn."""

    def close_user(self) -> bytes:
        """From the end of a user's text to where the answer starts."""

    def close_answer(self) -> bytes:
        """What ends an answer, its end-of-turn token first."""

    def open_next_user(self) -> bytes:
        """From a closed answer to where the next user text starts."""

    def decode(self, ids: bytes) -> str:
        """Text of ``ids`` without control tokens."""

    def without_control(self, ids: bytes) -> bytes:
        """``ids`` without the control ids in it."""


@dataclass(frozen=True, slots=True)
class Path:
    """The pieces of one turn.

    Attributes
    ----------
    before
        From the root to where this turn starts, with K/V in the state it starts from: nothing, or all of the parent's
        path and what the parent generated but for its last token.
    own
        What this turn feeds on top.
    """

    before: tuple[Piece, ...]
    own: tuple[Piece, ...]

    @property
    def full(self) -> tuple[Piece, ...]:
        """From the root."""
        return self.before + self.own


def paths_of(
    turns: Mapping[str, Turn], contexts: Mapping[str, ContextDefinition], tokenizer: PromptTokenizer
) -> dict[str, Path]:
    """The path of every turn; ``turns`` are in an order in which they can run. Each text is tokenized once.

    Raises
    ------
    GraphError
        Naming the agent, where the tokenizer refuses a text or the chat template has no place for it.
    """
    known: dict[str, bytes] = {}

    def text(content: str) -> bytes:
        if content not in known:
            known[content] = tokenizer.text_ids(content)
        return known[content]

    def piece(part: Part) -> Piece:
        if isinstance(part, AnswerPart):
            return OutputOf(turns[part.agent].speaker)
        if isinstance(part, ContextPart):
            return Known(text(contexts[part.context].text), CONTEXT_SOURCE + part.context)
        return Known(text(part.text), "text")

    paths: dict[str, Path] = {}
    for turn in turns.values():
        if turn.continues is None:
            before: tuple[Piece, ...] = ()
            opening: tuple[Piece, ...] = ()
        else:
            parent = turns[turn.continues]
            before = _after(parent, paths[parent.name])
            opening = (EndOfTurn(parent.speaker),)
        own: list[Piece] = []
        if turn.generates:
            try:
                header = (
                    tokenizer.open_conversation(turn.role) if turn.continues is None else tokenizer.open_next_user()
                )
                own = [*opening, Known(header)]
                for index, part in enumerate(turn.parts):
                    if index:
                        own.append(Known(tokenizer.separator))
                    own.append(piece(part))
                own.append(Known(tokenizer.close_user()))
            except KVLabError as refusal:
                raise GraphError(
                    f"agent {turn.name!r}: {refusal.message}", hint=refusal.hint, agent=turn.name
                ) from refusal
        paths[turn.name] = Path(before, tuple(own))
    return paths


def _after(turn: Turn, path: Path) -> tuple[Piece, ...]:
    """What has K/V in the state that ``turn`` leaves."""
    if not turn.generates:
        return path.full
    said = (*path.own, RawOutputOf(turn.name))
    return (*path.before, TurnOf(turn.name, said)) if turn.unless is not None else path.before + said
