"""Tools by name: what a plan may call between two turns. Plain functions from texts to a text, the same every time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kvlab.errors import InvalidInput

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w+")


def wait(*_: str) -> str:
    """Nothing but the pause before it."""
    return "Done."


def count_words(*texts: str) -> str:
    """How many words the texts have."""
    return f"{sum(len(_WORD.findall(text)) for text in texts)} words."


def find_sentence(document: str, *questions: str) -> str:
    """The sentence of the document that has most words of the questions; of equal ones the first."""
    asked = {word for question in questions for word in _WORD.findall(question.lower())}
    return max(
        _SENTENCE_ENDS.split(document.strip()), key=lambda one: len(asked.intersection(_WORD.findall(one.lower())))
    )


TOOLS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {"wait": wait, "count-words": count_words, "find-sentence": find_sentence}
)
"""What ``call=`` of :meth:`kvlab.Workflow.tool` may name, and a YAML file too."""


def checked_call(where: str, call: Any) -> str | Callable[..., str]:
    """A name of :data:`TOOLS`, or something that can be called."""
    if callable(call):
        found: Callable[..., str] = call
        return found
    if isinstance(call, str) and call in TOOLS:
        return call
    raise InvalidInput(
        f"call= of {where} is {call!r}", hint=f"a function from texts to a text, or one of: {', '.join(TOOLS)}"
    )


def function_of(call: str | Callable[..., str]) -> Callable[..., str]:
    """What is called."""
    return TOOLS[call] if isinstance(call, str) else call
