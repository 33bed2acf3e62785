"""Tokenizing text as text: no added token is found in it, and no space is put before it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from kvlab.errors import ModelRefused

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNTYPEABLE = "\U0010ffff\U0010fffe"
"""Two code points that are no characters, for names that no text contains."""


def copy_without(tokenizer: Tokenizer, unknown: Collection[int] = ()) -> Tokenizer:
    """A copy of ``tokenizer`` that neither truncates nor pads and finds no added token of ``unknown`` in a text."""
    from tokenizers import Tokenizer as Rust

    state = json.loads(tokenizer.to_str())
    state["truncation"] = state["padding"] = None
    added, state["added_tokens"] = state["added_tokens"], []
    vocabulary = Rust.from_str(json.dumps(state))
    for token in added:
        if token["id"] not in unknown:
            state["added_tokens"].append(token)
        elif vocabulary.token_to_id(token["content"]) is None:
            # Ids beyond the vocabulary are counted out in order when a tokenizer is read, so the place must stay taken.
            state["added_tokens"].append(token | {"content": f"{_UNTYPEABLE}{token['id']}", "normalized": False})
    copy = Rust.from_str(json.dumps(state))
    moved = [t["content"] for t in state["added_tokens"] if copy.token_to_id(t["content"]) != t["id"]]
    if moved:
        raise ModelRefused(
            f"the tokenizer's added tokens {moved[:3]} do not keep their ids when it is copied",
            hint="save the tokenizer again with tokenizers' own save(), or use another model",
        )
    return copy


def continued_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of ``text`` as it is tokenized after other text, where the tokenizer makes a difference."""
    alone: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    if not _adds_prefix(tokenizer):
        return alone
    newline: list[int] = tokenizer.encode("\n", add_special_tokens=False).ids
    after: list[int] = tokenizer.encode("\n" + text, add_special_tokens=False).ids
    return after[len(newline) :] if after[: len(newline)] == newline else alone


def _adds_prefix(tokenizer: Tokenizer) -> bool:
    newline: list[int] = tokenizer.encode("\n", add_special_tokens=False).ids
    after: list[int] = tokenizer.encode("\na", add_special_tokens=False).ids
    alone: list[int] = tokenizer.encode("a", add_special_tokens=False).ids
    return after != newline + alone


def leading_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that the tokenizer puts before every sequence, such as the beginning-of-sequence token."""
    alone: list[int] = tokenizer.encode("a", add_special_tokens=False).ids
    whole: list[int] = tokenizer.encode("a", add_special_tokens=True).ids
    return next(whole[:i] for i in range(len(whole)) if whole[i : i + len(alone)] == alone)
