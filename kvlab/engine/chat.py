"""From texts to token ids under a chat template: every part alone, once, and never a control token from a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kvlab.engine.chat_template import Message, TemplatePieces, cut_template
from kvlab.engine.plain_text import continued_ids, copy_without, leading_ids
from kvlab.errors import InvalidInput, KVLabError, ModelNotFound, ModelRefused
from kvlab.state.tokens import pack_ids, unpack_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class ConversationIds:
    """:class:`~kvlab.engine.chat_template.TemplatePieces` as packed ids."""

    opening: bytes
    role_opening: tuple[bytes, bytes] | str
    close_user: bytes
    close_answer: bytes
    open_next_user: bytes


@dataclass(frozen=True, slots=True, eq=False)
class ChatTokenizer:
    """A model's tokenizer and chat template. Immutable, so threads may share it.

    Ids are packed int32 bytes (:mod:`kvlab.state.tokens`). Texts are tokenized as continuations: a tokenizer that puts
    a space before every string it is given does not put one before each part of a prompt.

    Attributes
    ----------
    name
        Of the model, for messages.
    separator
        Ids of the blank line between the parts of a prompt.
    stop_ids
        A sampled id among these ends an answer.
    control_ids
        Ids that no text gives and that no decoded text shows.
    vocabulary
        Number of ids the model's logits cover.
    max_positions
        Longest path the model has positions for, in tokens.
    conversation
        The template's pieces, or the error that says why this model can only be used with raw text.
    """

    name: str
    separator: bytes
    stop_ids: frozenset[int]
    control_ids: frozenset[int]
    vocabulary: int
    max_positions: int
    conversation: ConversationIds | KVLabError
    _root: bytes
    _markers: frozenset[int]
    _full: Tokenizer
    _plain: Tokenizer

    @classmethod
    def load(cls, path: str | Path, name: str | None = None) -> Self:
        """Read tokenizer, template and limits from a model folder; no weights are read.

        Raises
        ------
        ModelNotFound
            If the folder has no tokenizer or no configuration.
        ModelRefused
            If the tokenizer is not one of the ``tokenizers`` library, whose added tokens can be told apart from text,
            or the configuration lacks a limit.
            A refused *template* is raised later, by the first use of a conversation: raw text still works.
        """
        from transformers import AutoConfig, AutoTokenizer

        folder = Path(path)
        name = name or folder.name
        try:
            only: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # no code of the folder runs
            tokenizer = AutoTokenizer.from_pretrained(folder, **only)
            config = AutoConfig.from_pretrained(folder, **only).get_text_config()
        except (OSError, ValueError) as error:
            raise ModelNotFound(
                f"no tokenizer and configuration can be read from {folder}: {error}",
                hint="the folder must hold config.json and tokenizer.json",
            ) from error
        limits = {name: getattr(config, name, None) for name in ("vocab_size", "max_position_embeddings")}
        if lacking := [name for name, value in limits.items() if value is None]:
            raise ModelRefused(
                f"the configuration of {name} says nothing about {' and '.join(lacking)}",
                hint="use a decoder model with a limited number of positions",
            )
        if not tokenizer.is_fast:
            raise ModelRefused(
                f"{name} has a {type(tokenizer).__name__}, which cannot keep control tokens out of user text",
                hint="convert the tokenizer to a tokenizer.json, or use another model",
            )
        return cls._of(name, tokenizer, config, _end_ids(folder, tokenizer, config))

    @classmethod
    def _of(cls, name: str, tokenizer: Any, config: Any, end_ids: set[int]) -> Self:
        template = tokenizer.get_chat_template() if tokenizer.chat_template else ""
        full = copy_without(tokenizer.backend_tokenizer)
        added = {id_: token for id_, token in tokenizer.added_tokens_decoder.items() if not _is_space(token)}
        control = {id_ for id_, token in added.items() if token.special or token.content in template}
        markers = control | {id_ for id_, token in added.items() if token.content.lstrip()[:1] in ("<", "[")}
        plain = copy_without(full, markers)
        conversation: ConversationIds | KVLabError
        if template:
            try:
                conversation = _encode_pieces(full, cut_template(template, _renderer(tokenizer)))
            except ModelRefused as refusal:
                conversation = refusal
        else:
            conversation = InvalidInput(
                f"{name} has no chat template, so it cannot hold a conversation",
                hint="use raw text (chat=False), or an instruction-tuned model",
            )
        if isinstance(conversation, ConversationIds):
            end_ids = end_ids | (set(unpack_ids(conversation.close_answer[:4])) & control)
        return cls(
            name=name,
            separator=pack_ids(continued_ids(plain, SEPARATOR)),
            stop_ids=frozenset(end_ids),
            control_ids=frozenset(control),
            vocabulary=int(config.vocab_size),
            max_positions=int(config.max_position_embeddings),
            conversation=conversation,
            _root=pack_ids(leading_ids(full)),
            _markers=frozenset(markers),
            _full=full,
            _plain=plain,
        )

    def text_ids(self, text: str) -> bytes:
        """Ids of ``text``, tokenized alone. Markers of the chat template in it stay text. Empty text gives no ids.

        Raises
        ------
        InvalidInput
            If the tokenizer has no way to write one of its markers as text.
        """
        ids = continued_ids(self._plain, text)
        if forbidden := self._markers.intersection(ids):
            shown = ", ".join(repr(self._full.id_to_token(id_)) for id_ in sorted(forbidden))
            raise InvalidInput(
                f"the tokenizer of {self.name} cannot write {shown} as plain text",
                hint="leave the marker out of the text, or put a space into it",
            )
        return pack_ids(ids)

    def root_ids(self) -> bytes:
        """What a path of raw text starts with: the beginning-of-sequence token if the tokenizer adds one."""
        return self._root

    def open_conversation(self, role: str | None) -> bytes:
        """Ids from the root to where the first user text starts. None lets the template decide about a system turn.

        Raises
        ------
        InvalidInput
            If the model has no chat template, or a role is given and the template has no fixed place for it.
        ModelRefused
            If the template is not append-only.
        """
        pieces = self._pieces()
        if role is None:
            return pieces.opening
        if isinstance(pieces.role_opening, str):
            raise InvalidInput(
                f"the chat template of {self.name} has no place for role=: {pieces.role_opening}",
                hint="put the role into the prompt",
            )
        before, after = pieces.role_opening
        return before + self.text_ids(role) + after

    def close_user(self) -> bytes:
        """Ids after a user text: the end of that turn and the header under which the model answers."""
        return self._pieces().close_user

    def close_answer(self) -> bytes:
        """Ids that end an answer, the end-of-turn token first."""
        return self._pieces().close_answer

    def open_next_user(self) -> bytes:
        """Ids between a closed answer and the next user text."""
        return self._pieces().open_next_user

    def decode(self, ids: bytes) -> str:
        """Text of ``ids``, control tokens left out."""
        return str(self._full.decode(unpack_ids(self.without_control(ids)), skip_special_tokens=False))

    def without_control(self, ids: bytes) -> bytes:
        """``ids`` without control tokens, so that they can stand in another prompt as text."""
        return pack_ids(id_ for id_ in unpack_ids(ids) if id_ not in self.control_ids)

    def _pieces(self) -> ConversationIds:
        if isinstance(self.conversation, KVLabError):
            raise self.conversation.with_traceback(None)
        return self.conversation


def _renderer(tokenizer: Any) -> Any:
    def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:  # noqa: FBT001 - as the template's own flag
        return str(
            tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=add_generation_prompt)
        )

    return render


def _encode_pieces(tokenizer: Tokenizer, pieces: TemplatePieces) -> ConversationIds:
    def start(text: str) -> bytes:
        return pack_ids(tokenizer.encode(text, add_special_tokens=False).ids)

    def on(text: str) -> bytes:
        return pack_ids(continued_ids(tokenizer, text))

    role = pieces.role_opening
    return ConversationIds(
        opening=start(pieces.opening),
        role_opening=role if isinstance(role, str) else (start(role[0]), on(role[1])),
        close_user=on(pieces.close_user),
        close_answer=on(pieces.close_answer),
        open_next_user=on(pieces.open_next_user),
    )


def _end_ids(folder: Path, tokenizer: Any, config: Any) -> set[int]:
    """Every id that tokenizer, configuration or generation configuration call the end of a sequence."""
    ends: set[int] = set()
    generation = folder / "generation_config.json"
    written = json.loads(generation.read_text()).get("eos_token_id") if generation.is_file() else None
    for value in (tokenizer.eos_token_id, config.eos_token_id, written):
        ends.update(value if isinstance(value, list) else [] if value is None else [value])
    return ends


def _is_space(token: Any) -> bool:
    return bool(token.content.isspace()) and not token.special
