"""Token ids as bytes. A thousand Python ints cost 35 kB in a task's arguments; int32 bytes cost 4 kB."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

BYTES_PER_ID = 4


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian int32 bytes."""
    packed = array("i", iter(ids))  # given bytes themselves, array would reinterpret four of them as one id
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    """The inverse of :func:`pack_ids`."""
    ids = array("i")
    ids.frombytes(packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return tuple(ids)


def n_ids(packed: bytes) -> int:
    """How many token ids ``packed`` holds."""
    return len(packed) // BYTES_PER_ID


def common_prefix(a: bytes, b: bytes) -> int:
    """Number of equal leading token ids of two packed sequences."""
    limit = min(len(a), len(b)) // BYTES_PER_ID
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[: middle * BYTES_PER_ID] == b[: middle * BYTES_PER_ID]:
            low = middle
        else:
            high = middle - 1
    return low
