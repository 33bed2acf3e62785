"""A full disk, told the same way by everything that writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kvlab.errors import NoRoom

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: OSError) -> bool:
    """Whether ``error`` says that the disk, the quota or the allowed size of a file is used up."""
    return error.errno in _FULL


def no_room(path: Path, need: int, *, kept: str, hint: str) -> NoRoom:
    """The error to raise when ``need`` bytes more do not fit at ``path``; ``kept`` says what is still there."""
    stat = os.statvfs(path if path.exists() else path.parent)
    have = stat.f_bavail * stat.f_frsize
    message = f"no room for {need} bytes in {path} ({have} bytes free); {kept}"
    return NoRoom(message, hint=hint, path=str(path), need=need, have=have)
