"""Traces of requests in the Mooncake schema, read and checked: one JSON object a line.

``timestamp`` (ms), ``input_length`` and ``output_length`` (tokens), ``hash_ids`` (blocks of 512 tokens of the input; equal
ids mean an equal prefix up to that block's end). R. Qin et al., "Mooncake", FAST '25.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvlab.errors import InvalidInput
from kvlab.policy.replay import Request

BLOCK_TOKENS = 512
FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")


def read_trace(path: Path) -> list[Request]:
    """The requests of ``path`` in the order of their time.

    Raises
    ------
    InvalidInput
        If there is no such file, or naming the line that is not of this schema.
    """
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}", hint="--trace wants a file of JSON lines in the Mooncake schema")
    try:
        with path.open(encoding="utf-8") as file:
            timed = [_request(number, line) for number, line in enumerate(file, start=1) if line.strip()]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text: {error.reason}", hint="JSON lines are text") from error
    if not timed:
        raise InvalidInput(f"{path} has no requests", hint=f"each line has {', '.join(FIELDS)}")
    return [request for _, request in sorted(timed, key=lambda one: one[0])]


def _request(number: int, line: str) -> tuple[float, Request]:
    try:
        told = json.loads(line)
        when, length, blocks = (told[name] for name in ("timestamp", "input_length", "hash_ids"))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidInput(f"line {number} is no request: {error!r}", hint=f"it wants {', '.join(FIELDS)}") from error
    if not _is_number(when) or not isinstance(length, int) or not isinstance(blocks, list):
        raise InvalidInput(f"line {number} has values of the wrong type", hint="two numbers and a list of ids")
    if not all(isinstance(block, int) for block in blocks) or len(set(blocks)) != len(blocks):
        raise InvalidInput(f"line {number} has hash_ids that are no different whole numbers", hint="one id a block")
    if not (len(blocks) - 1) * BLOCK_TOKENS < length <= len(blocks) * BLOCK_TOKENS:
        raise InvalidInput(
            f"line {number} has {len(blocks)} blocks of {BLOCK_TOKENS} tokens for an input of {length}",
            hint="the last block may be the only one that is not full",
        )
    return when, Request(tuple(blocks), tuple(_sizes(length)))


def _sizes(length: int) -> Iterator[int]:
    for start in range(0, length, BLOCK_TOKENS):
        yield min(BLOCK_TOKENS, length - start)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
