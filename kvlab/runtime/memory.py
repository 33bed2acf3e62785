"""Before a model is loaded: what it will take, whether that fits, and what is left for K/V."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvlab.engine.models import ModelCard
from kvlab.errors import InvalidInput, NoRoom

CGROUP = Path("/sys/fs/cgroup")
DEFAULT_SHARE = 4
"""The default KV budget is one part in so many of what is free after the weights."""


def parse_budget(kv_budget: int | str | None) -> int | None:
    """Bytes of a budget like ``"2 GiB"``; None stays None."""
    if kv_budget is None:
        return None
    from dask.utils import parse_bytes

    try:
        # A number is bytes; anything else is read as a text, so that True and lists are no sizes.
        nbytes = int(parse_bytes(kv_budget if type(kv_budget) in (int, float) else str(kv_budget)))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"kv_budget={kv_budget!r} is no size", hint='bytes, or a text like "2 GiB"') from error
    if nbytes <= 0:
        raise InvalidInput(f"kv_budget={kv_budget!r} leaves no room for any state", hint='e.g. kv_budget="2 GiB"')
    return nbytes


def free_bytes() -> int:
    """Memory that can be had now, within the limits of this container."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return available
    return min(available, max(0, limit - used))


def check_room(card: ModelCard, copies: int, budget: int | None, dtype: str, say: Callable[[str], None]) -> int:
    """Say what ``copies`` of the model will take, and return the KV budget in bytes.

    Raises
    ------
    NoRoom
        If weights and budget do not fit into free memory; nothing has been loaded.
    """
    precision = "float32" if dtype == "auto" else dtype
    weights = card.weight_bytes(precision) * copies
    free = free_bytes()
    wanted = budget if budget is not None else max(0, free - weights) // DEFAULT_SHARE
    if weights + wanted > free or wanted <= 0:
        raise NoRoom(
            f"{card.name} needs {_gib(weights)} for {copies} copies of its weights and {_gib(wanted)} for K/V; "
            f"{_gib(free)} are free",
            hint="fewer workers, a smaller kv_budget or model, or close other programs",
            need_bytes=weights + wanted,
            free_bytes=free,
        )
    per_token = card.kv_bytes_per_token(precision)
    say(
        f"{card.name}: {_gib(weights)} for {copies} copies of its weights, a KV budget of {_gib(wanted)} "
        f"({wanted // per_token:,} tokens at {per_token:,} bytes); {_gib(free)} are free"
    )
    return wanted


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"
