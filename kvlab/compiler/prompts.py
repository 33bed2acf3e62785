"""From turns to pieces: what each agent's conversation says from the root, before anything has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvlab.compiler.graph import EndOfTurn, Known, OutputOf, Piece, RawOutputOf, TurnOf
from kvlab.compiler.turns import Turn
from kvlab.errors import GraphError, KVLabError
from kvlab.state.identity import KVConfig, ModelIdentity
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
class Spoken:
    """A model as the compiler knows it: how it reads texts, how far, and whose states its own are like.

    ``min_shared_tokens`` is what a shared prefix of it must add; None where the compiler is told for all models.
    """

    tokenizer: PromptTokenizer
    max_positions: int
    identity: ModelIdentity
    config: KVConfig
    min_shared_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The pieces of one turn.

    Attributes
    ----------
    before
        From the root to where this turn starts, with K/V in the state it starts from: nothing, or all of the path of
        :attr:`Turn.start` and what that one generated but for its last token.
    own
        What this turn feeds on top. What was said in its conversation since then comes first: as text where another model
        said it, and else, in another namespace, as the ids that it was.
    """

    before: tuple[Piece, ...]
    own: tuple[Piece, ...]

    @property
    def full(self) -> tuple[Piece, ...]:
        """From the root."""
        return self.before + self.own


def paths_of(
    turns: Mapping[str, Turn],
    contexts: Mapping[str, ContextDefinition],
    tokenizers: Mapping[str, PromptTokenizer],
) -> dict[str, Path]:
    """The path of every turn; ``turns`` are in an order in which they can run. Each text is tokenized once a model.

    A turn's path is written for its own model and namespace. What another model said before it in its conversation stands
    there as text.

    Parameters
    ----------
    tokenizers
        By the names of :attr:`Turn.model`.

    Raises
    ------
    GraphError
        Naming the agent, where the tokenizer refuses a text or the chat template has no place for it.
    """
    paths: dict[str, Path] = {}
    known: dict[str, dict[str, bytes]] = {model: {} for model in tokenizers}
    for realm in dict.fromkeys(turn.realm for turn in turns.values()):
        model = realm[0]
        script = _Script(realm, turns, contexts, tokenizers[model], known[model])
        for turn in turns.values():
            if turn.realm == realm:
                paths[turn.name] = script.path_of(turn)
    return {name: paths[name] for name in turns}


@dataclass(frozen=True, slots=True)
class _Written:
    """A turn in the script of one model: from the root to the state it starts from, what others said since, itself."""

    before: tuple[Piece, ...]
    lead: tuple[Piece, ...]
    own: tuple[Piece, ...]


class _Script:
    """Conversations as one model reads them in one namespace. ``known`` has the ids of its texts."""

    def __init__(
        self,
        realm: tuple[str, str],
        turns: Mapping[str, Turn],
        contexts: Mapping[str, ContextDefinition],
        tokenizer: PromptTokenizer,
        known: dict[str, bytes],
    ) -> None:
        self._realm, self._model = realm, realm[0]
        self._turns, self._contexts, self._tokenizer, self._known = turns, contexts, tokenizer, known
        self._written: dict[str, _Written] = {}

    def path_of(self, turn: Turn) -> Path:
        unwritten: list[Turn] = []
        current: Turn | None = turn
        while current is not None and current.name not in self._written:
            unwritten.append(current)
            current = self._turns[current.continues] if current.continues is not None else None
        for one in reversed(unwritten):
            self._written[one.name] = self._write(one)
        written = self._written[turn.name]
        return Path(written.before, written.lead + written.own)

    def _write(self, turn: Turn) -> _Written:
        before: tuple[Piece, ...] = ()
        lead: tuple[Piece, ...] = ()
        if turn.continues is not None:
            parent = self._turns[turn.continues]
            above = self._written[parent.name]
            same = parent.model == self._model
            left = self._left_by(parent, RawOutputOf(parent.name) if same else OutputOf(parent.name))
            if parent.realm == self._realm:
                before = above.before + above.lead + left
            else:
                before, lead = above.before, above.lead + left
        return _Written(before, lead, self._said_in(turn) if turn.generates else ())

    def _left_by(self, turn: Turn, answer: Piece) -> tuple[Piece, ...]:
        """What a turn adds to its conversation."""
        if not turn.generates:
            return ()
        said = (*self._written[turn.name].own, answer)
        return (TurnOf(turn.name, said),) if turn.unless is not None else said

    def _said_in(self, turn: Turn) -> tuple[Piece, ...]:
        tokenizer = self._tokenizer
        own: list[Piece] = []
        try:
            if turn.continues is None:
                own.append(Known(tokenizer.open_conversation(turn.role)))
            else:
                parent = self._turns[turn.continues]
                same = parent.model == self._model
                own.append(EndOfTurn(parent.speaker) if same else Known(tokenizer.close_answer()))
                own.append(Known(tokenizer.open_next_user()))
            for index, part in enumerate(turn.parts):
                if index:
                    own.append(Known(tokenizer.separator))
                own.append(self._piece(part))
            own.append(Known(tokenizer.close_user()))
        except KVLabError as refusal:
            raise GraphError(f"agent {turn.name!r}: {refusal.message}", hint=refusal.hint, agent=turn.name) from refusal
        return tuple(own)

    def _piece(self, part: Part) -> Piece:
        if isinstance(part, AnswerPart):
            return OutputOf(self._turns[part.agent].speaker)
        if isinstance(part, ContextPart):
            return Known(self._text(self._contexts[part.context].text), CONTEXT_SOURCE + part.context)
        return Known(self._text(part.text), "text")

    def _text(self, content: str) -> bytes:
        if content not in self._known:
            self._known[content] = self._tokenizer.text_ids(content)
        return self._known[content]
