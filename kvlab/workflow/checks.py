"""Checks of single values. Each returns the value in its one spelling or raises InvalidInput naming where it stood."""

from __future__ import annotations

import math
import numbers
import os
from pathlib import Path
from typing import Any

from kvlab.errors import InvalidInput

RESERVED_IN_NAMES = ":/#"
"""They build kvlab's own ids: ``context:paper``, ``reviewer-1/0``, ``context:paper#2``."""

RESERVED_IN_NAMESPACES = "/@"
"""They divide the namespaces of a lab, a run, an agent and a model."""

LARGEST_SEED = 2**63 - 1


def checked_name(kind: str, name: Any) -> str:
    """A name of a workflow, context or agent: one line, not empty, without reserved characters."""
    if not isinstance(name, str):
        raise InvalidInput(
            f"the name of a {kind} must be a str, not {type(name).__name__}: {name!r}", hint="pass a str"
        )
    if not name or name != name.strip() or not name.isprintable() or any(mark in name for mark in RESERVED_IN_NAMES):
        raise InvalidInput(
            f"{name!r} cannot be the name of a {kind}",
            hint=f"use one line of text without spaces around it and without any of {' '.join(RESERVED_IN_NAMES)}",
            name=name,
        )
    return name


def checked_text(where: str, text: Any) -> str:
    """Text that a tokenizer can take: a str that is not blank and has a UTF-8 form."""
    if not isinstance(text, str):
        raise InvalidInput(f"{where} must be text (str), not {type(text).__name__}", hint="pass a str")
    if not text.strip():
        raise InvalidInput(f"{where} is empty", hint="give it some text, or leave it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{where} has a lone surrogate at character {error.start}, which no tokenizer can encode",
            hint="decode the source with errors='replace'",
            position=error.start,
        ) from None
    return text


def checked_path(where: str, path: Any) -> Path:
    """A path that a file system can be asked for."""
    if isinstance(path, str | os.PathLike) and "\0" not in (told := os.fspath(path)) and told:
        return Path(told)
    raise InvalidInput(f"{where} is {path!r}", hint="a path")


def is_encodable(text: str) -> bool:
    """Whether a text has a UTF-8 form, which a lone surrogate has not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_label(where: str, text: Any) -> str:
    """What a person calls something: one line of text, or nothing."""
    if isinstance(text, str) and (not text or text.isprintable()):
        return text
    raise InvalidInput(f"{where} is {text!r}", hint="one line of text")


def checked_namespace(where: str, namespace: Any) -> str:
    """A namespace within that of a run: text without the marks that divide the two."""
    if not any(mark in checked_text(where, namespace) for mark in RESERVED_IN_NAMESPACES):
        return str(namespace)
    raise InvalidInput(f"{where} is {namespace!r}", hint="a text without any of / @", namespace=namespace)


def checked_integer(where: str, value: Any, least: int, largest: int = LARGEST_SEED) -> int:
    """An int in ``[least, largest]``; bools and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        told = f"{where} must be an int, not {type(value).__name__}: {value!r}"
        raise InvalidInput(told, hint="a whole number", value=repr(value))
    number = int(value)
    if not least <= number <= largest:
        told = f"{where} must be between {least} and {largest}, not {number}"
        raise InvalidInput(told, hint=f"{least} ≤ n ≤ {largest}", value=number)
    return number


def checked_temperature(where: str, value: Any) -> float:
    """A finite float ≥ 0. 0 is greedy."""
    return _at_least_zero(where, value, "0 is greedy")


def checked_seconds(where: str, value: Any) -> float:
    """A finite float ≥ 0."""
    return _at_least_zero(where, value, "seconds")


def _at_least_zero(where: str, value: Any, hint: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        told = f"{where} must be a number, not {type(value).__name__}: {value!r}"
        raise InvalidInput(told, hint=hint, value=repr(value))
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise InvalidInput(f"{where} must be finite and at least 0, not {number}", hint=hint, value=number)
    return number + 0.0  # -0.0 becomes 0.0: one recipe for one meaning
