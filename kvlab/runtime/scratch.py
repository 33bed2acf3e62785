"""The lab's own folder for worker logs and Dask's scratch files, and sweeping those of labs that were killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "kvlab-lab-"


def make_scratch() -> Path:
    """A new folder, readable by its owner alone, named after this process; folders of dead processes are removed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name[len(PREFIX) :].split("-")[0]
        if owner.isdigit() and not _alive(int(owner)) and _is_mine(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def remove_scratch(folder: Path) -> None:
    """Remove a lab's folder and what is in it."""
    shutil.rmtree(folder, ignore_errors=True)


def _is_mine(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.getuid()
    except FileNotFoundError:  # another lab that starts now sweeps, too
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
