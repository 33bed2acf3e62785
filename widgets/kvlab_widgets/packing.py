"""Rows on their way to a browser: one JSON text, deflated where it stays in a file."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from kvlab.display.quantities import seconds_text

SIGNIFICANT = 6
"""Digits kept of a number that is only shown and drawn: more than any clock here has."""

EXACT = frozenset({"seconds", "predicted", "t0", "t1"})
"""Columns that views subtract or divide: every digit is kept, so that what they say is what the store says."""


def as_json(batch: Mapping[str, Any]) -> str:
    """``batch`` as JSON, its reals rounded to :data:`SIGNIFICANT` digits where that cannot be seen."""
    return json.dumps(_rounded(batch), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def packed(batch: Mapping[str, Any]) -> str:
    """:func:`as_json`, deflated (zlib), in base64: what a browser's ``DecompressionStream("deflate")`` reads."""
    return base64.b64encode(zlib.compress(as_json(batch).encode(), 9)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The inverse of :func:`packed`."""
    return dict(json.loads(zlib.decompress(base64.b64decode(text))))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        near = float(f"{value:.{SIGNIFICANT}g}")
        # A number just beside the middle between two that are shown must not be rounded twice.
        return near if seconds_text(near) == seconds_text(value) and f"{near:.0%}" == f"{value:.0%}" else value
    if isinstance(value, Mapping):
        return {key: one if key in EXACT else _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return value
