"""A full disk, told the same way by everything that writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kvlab.errors import InvalidInput, NoRoom

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: OSError) -> bool:
    """Whether ``error`` says that the disk, the quota or the allowed size of a file is used up."""
    return error.errno in _FULL


def require_writable(folder: Path, what: str, hint: str, *, mode: int = 0o777) -> Path:
    """``folder``, made (with ``mode``) if it is not there, once it is known that files can be made in it.

    Raises
    ------
    InvalidInput
        If it is no folder, or may not be written; ``what`` says what should have gone there.
    """
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else "it may not be written"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        raise InvalidInput(f"{what} cannot go to {folder}: {reason}", hint=hint, path=str(folder))
    return folder


def no_room(path: Path, need: int, *, kept: str, hint: str) -> NoRoom:
    """The error to raise when ``need`` bytes more do not fit at ``path``; ``kept`` says what is still there."""
    stat = os.statvfs(path if path.exists() else path.parent)
    have = stat.f_bavail * stat.f_frsize
    message = f"no room for {need} bytes in {path} ({have} bytes free); {kept}"
    return NoRoom(message, hint=hint, path=str(path), need=need, have=have)
