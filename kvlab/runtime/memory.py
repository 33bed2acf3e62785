"""Before a model is loaded: what it will take, whether that fits, and what is left for K/V."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from kvlab.engine.models import ModelCard
from kvlab.errors import InvalidInput, NoRoom

CGROUP = Path("/sys/fs/cgroup")
DEFAULT_SPILL = 4 << 30
DEFAULT_SHARE = 4
"""A default budget is one part in so many of what is free, of memory after the weights."""


def parse_budget(told: int | str | None, name: str = "kv_budget") -> int | None:
    """Bytes of a budget like ``"2 GiB"``; None stays None."""
    if told is None:
        return None
    nbytes = _bytes_of(told, name)
    if nbytes <= 0:
        raise InvalidInput(f"{name}={told!r} leaves no room for any state", hint=f'e.g. {name}="2 GiB"')
    return nbytes


def spill_limit(told: int | str | None, folder: Path | None, *, own: bool) -> int:
    """Bytes that may be spilled to ``folder``; as much as is sensible there if nobody said how much.

    Raises
    ------
    InvalidInput
        For what is no size, and for spilling on machines that are not this one.
    """
    if told is not None:
        nbytes = _bytes_of(told, "spill_bytes")
        if nbytes < 0:
            raise InvalidInput(f"spill_bytes={told!r} is no size", hint="0 turns spilling off")
        if nbytes and not own:
            raise InvalidInput(
                f"spill_bytes={told!r} with the workers of somebody's scheduler: they may be on other machines, and none "
                "of them sees the others' disks",
                hint="leave out spill_bytes, or the address",
            )
        return nbytes
    if not own or folder is None or _in_memory(folder):
        return 0
    return min(DEFAULT_SPILL, shutil.disk_usage(folder).free // DEFAULT_SHARE)


def _bytes_of(told: int | str, name: str) -> int:
    from dask.utils import parse_bytes

    try:
        if isinstance(told, str) and not any(one.isdigit() for one in told):
            raise ValueError  # noqa: TRY301 - as what cannot be read; Dask reads no number as one
        # A number is bytes; anything else is read as a text, so that True and lists are no sizes.
        return int(parse_bytes(told if type(told) in (int, float) else str(told)))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{name}={told!r} is no size", hint='bytes, or a text like "2 GiB"') from error


def _in_memory(folder: Path) -> bool:
    """Whether the files of a folder lie in memory: what is written there would leave no room."""
    import psutil

    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[one] for one in (folder, *folder.parents) if one in mounts), "") in ("tmpfs", "ramfs")


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
    return f"{nbytes / 2**30:.2f} GiB" if nbytes >= 2**28 else f"{nbytes / 2**20:.0f} MiB"
