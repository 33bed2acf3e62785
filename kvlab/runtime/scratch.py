"""The lab's own folder for worker logs and Dask's scratch files, and sweeping up after labs that were killed.

A worker ends when its starter is gone, but one that is stopped (SIGSTOP) does not notice: it keeps its memory until the next
lab ends it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import psutil

PREFIX = "kvlab-lab-"
ENDING_SECONDS = 5.0
"""How long a killed process may take to give back its memory."""


def make_scratch() -> Path:
    """A new folder, readable by its owner alone, named after this process.

    Folders of dead processes are removed, and workers that were started from there are killed first.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name[len(PREFIX) :].split("-")[0]
        if owner.isdigit() and not _alive(int(owner)) and _is_mine(folder):
            _end_workers(folder)
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def remove_scratch(folder: Path) -> None:
    """Remove a lab's folder and what is in it."""
    shutil.rmtree(folder, ignore_errors=True)


def _end_workers(folder: Path) -> None:
    """Kill the processes of this user that were told to work in ``folder``: see :func:`worker_process.command`."""
    left = []
    for process in psutil.process_iter(["cmdline", "uids"]):
        line, uids = process.info["cmdline"] or [], process.info["uids"]
        if uids is not None and uids.real == os.getuid() and any(word.startswith(f"{folder}/") for word in line):
            with contextlib.suppress(psutil.Error):
                process.kill()
                left.append(process)
    psutil.wait_procs(left, timeout=ENDING_SECONDS)


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
