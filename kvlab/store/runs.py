"""Run folders: making, opening, listing and removing them. Needs no model and no cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvlab.errors import InvalidInput, RunUnreadable
from kvlab.store.log import EventLog
from kvlab.store.room import is_full, no_room, require_writable
from kvlab.store.saved import COMPLETE, CONFIG, EVENTS, LOGS, SavedRun, folder_bytes

NAME_LENGTH = 60
"""Characters of a workflow's name that enter the folder's name; file systems end at 255 bytes."""


class RunFolder:
    """A run being written: ``events.arrows``, ``run.json``, ``logs/``, and ``_COMPLETE`` when it is whole.

    Attributes
    ----------
    path
        The folder.
    log
        Where events go.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / LOGS).mkdir(mode=0o700)
        self.log = EventLog(path / EVENTS)

    @property
    def logs(self) -> Path:
        """Folder of text logs."""
        return self.path / LOGS

    def write_config(self, document: dict[str, Any]) -> None:
        """Write ``run.json``: configuration and environment. Replaces an earlier one whole, or not at all.

        Raises
        ------
        InvalidInput
            If ``document`` is not JSON.
        NoRoom
            If the disk is full.
        """
        try:
            written = json.dumps(document, indent=2, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the configuration of a run is not JSON: {error}", hint="use plain values") from error
        _publish(self.path / CONFIG, written + "\n")

    def discard(self) -> None:
        """Remove it: a run that cannot begin leaves nothing."""
        shutil.rmtree(self.path, ignore_errors=True)

    def complete(self) -> None:
        """Close the log and mark the run whole. Until then a reader is told that it is not."""
        self.log.close()
        _publish(self.path / COMPLETE, "")


def runs_root() -> Path:
    """Where runs are kept: ``$KVLAB_RUNS``, else ``./runs``."""
    return Path(os.environ.get("KVLAB_RUNS") or "runs")


def require_runs_root(root: str | os.PathLike[str] | None = None) -> Path:
    """``root``, or :func:`runs_root`, once it is known that runs can be made there.

    Raises
    ------
    InvalidInput
        If they cannot.
    """
    parent = Path(root) if root is not None else runs_root()
    return require_writable(parent, "runs", "KVLAB_RUNS=FOLDER names another place", mode=0o700)


def new_run_folder(
    name: str, clock: Callable[[], int] = time.time_ns, *, root: str | os.PathLike[str] | None = None
) -> RunFolder:
    """Make ``<root>/<YYYY-MM-DD-HHMMSS>-<name>/``, readable by its owner alone.

    Two runs of one second and name, also of two processes, get two folders: the second one's name ends in ``-2``.

    Parameters
    ----------
    name
        Name of the workflow; characters that do not belong in a file name become ``-``.
    clock
        Unix time in ns.
    root
        Instead of :func:`runs_root`.
    """
    stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(clock() // 1_000_000_000))
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:NAME_LENGTH] or "run"
    parent = require_runs_root(root)
    path, attempt = parent / f"{stamp}-{plain}", 1
    while not _made(path):
        attempt += 1
        path = parent / f"{stamp}-{plain}-{attempt}"
    try:
        return RunFolder(path)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def open_run(path: str | os.PathLike[str]) -> SavedRun:
    """Open a run folder, or the one of that name under :func:`runs_root`. Changes nothing.

    Raises
    ------
    RunUnreadable
        If it is not a run, has nothing whole in it, or a newer kvlab wrote it.
    """
    folder = Path(path)
    if not folder.exists() and (runs_root() / folder).exists():
        folder = runs_root() / folder
    if not folder.exists():
        raise RunUnreadable(f"there is no run {path}, here or in {runs_root()}", hint="kvlab runs ls shows them")
    run = SavedRun(folder)
    run.refresh()
    return run


def list_runs(root: str | os.PathLike[str] | None = None) -> list[SavedRun]:
    """The runs under ``root``, oldest first. Their events are read when they are asked for."""
    parent = Path(root) if root is not None else runs_root()
    if not parent.is_dir():
        return []
    return [SavedRun(path) for path in sorted(parent.iterdir()) if (path / EVENTS).is_file()]


def remove_run(path: str | os.PathLike[str]) -> int:
    """Delete a run folder and return the bytes that it held.

    Raises
    ------
    InvalidInput
        If it is not a run folder, or a process is still writing it; nothing is deleted then.
    """
    folder = Path(path)
    log = folder / EVENTS
    if folder.is_symlink() or not log.is_file():
        raise InvalidInput(f"{folder} is not a run folder", hint="list_runs() shows them")
    if SavedRun(folder).being_written:
        raise InvalidInput(f"{folder} is still being written", hint="cancel that run first")
    nbytes = folder_bytes(folder)
    shutil.rmtree(folder)
    return nbytes


def _made(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _publish(path: Path, text: str) -> None:
    """Write, flush, rename: a reader sees the old text or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        if not is_full(error):
            raise
        raise no_room(path, len(text), kept="what was there is kept", hint="free space and try again") from error
