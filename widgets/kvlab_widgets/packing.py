"""Rows on their way to a browser: one JSON text, deflated where it stays in a file."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

SIGNIFICANT = 6
"""Digits kept of a measured number: more than any clock here has."""


def as_json(batch: Mapping[str, Any]) -> str:
    """``batch`` as JSON, its reals rounded to :data:`SIGNIFICANT` digits."""
    return json.dumps(_rounded(batch), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def packed(batch: Mapping[str, Any]) -> str:
    """:func:`as_json`, deflated (zlib), in base64: what a browser's ``DecompressionStream("deflate")`` reads."""
    return base64.b64encode(zlib.compress(as_json(batch).encode(), 9)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The inverse of :func:`packed`."""
    return dict(json.loads(zlib.decompress(base64.b64decode(text))))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return value
