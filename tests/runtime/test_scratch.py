"""Folders of a lab: its own, readable by its owner, and none of a dead one left."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kvlab.runtime import scratch
from kvlab.runtime.scratch import PREFIX, make_scratch, remove_scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def dead() -> int:
    """The id of a process that is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_each_lab_has_its_own_private_folder(temporary: Path) -> None:
    first, second = make_scratch(), make_scratch()
    assert first != second
    assert {first.parent, second.parent} == {temporary}
    assert first.name.startswith(f"{PREFIX}{os.getpid()}-")
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    (first / "worker-0.log").write_text("x")
    remove_scratch(first)
    assert not first.exists()
    assert second.exists()
    remove_scratch(first)


def test_folders_of_dead_labs_are_swept_and_no_others(temporary: Path, dead: int) -> None:
    orphan = temporary / f"{PREFIX}{dead}-abc"
    (orphan / "dask" / "deep").mkdir(parents=True)
    kept = [
        temporary / f"{PREFIX}{os.getpid()}-xyz",
        temporary / f"{PREFIX}1-init",
        temporary / f"{PREFIX}mine",
        temporary / f"other-{dead}",
    ]
    for folder in kept:
        folder.mkdir()
    make_scratch()
    assert not orphan.exists()
    assert all(folder.exists() for folder in kept)


def test_a_link_with_such_a_name_takes_nothing_with_it(temporary: Path, dead: int) -> None:
    precious = temporary / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (temporary / f"{PREFIX}{dead}-link").symlink_to(precious)
    make_scratch()
    assert (precious / "file").exists()


def test_two_labs_that_sweep_at_once_do_not_trip_over_each_other(
    temporary: Path, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = temporary / f"{PREFIX}{dead}-abc"
    orphan.mkdir()

    def other_sweeps_first(pid: int) -> bool:
        orphan.rmdir()
        return False

    monkeypatch.setattr(scratch, "_alive", other_sweeps_first)
    assert make_scratch().is_dir()
