"""After SIGKILL of everything, the next start finds what was left, and removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvlab.config import CACHE_VARIABLE, RUNS_VARIABLE
from kvlab.runtime.scratch import PREFIX

LAB = """
import os, sys, time
import kvlab
from kvlab.progress import Progress

lab = kvlab.Lab(model=os.environ["MODEL"], workers=2, kv_budget="64 MiB", progress=Progress("nothing"))
state = lab.materialize("one two three " * 20, worker="worker-0").transfer("worker-1", keep=True)
answer = state.resume("four", max_new_tokens=4)
print(*lab._cluster.pids.values(), flush=True)
if "wait" in sys.argv:
    time.sleep(600)
"""


def alive(pids: list[int]) -> list[int]:
    return [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]


def blocks(pids: list[int]) -> int:
    """Descriptors of kvlab's shared memory that these processes hold."""
    links = [os.readlink(fd.path) for pid in alive(pids) for fd in os.scandir(f"/proc/{pid}/fd") if fd.is_symlink()]
    return sum(link.startswith("/memfd:kvlab") for link in links)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "running"])
def test_the_next_start_removes_folders_processes_and_shared_memory(
    stopped: bool, tmp_path: Path, tiny_model_dir: str, kvlab_folders: Path, faults: Any
) -> None:
    """Workers that are stopped when their lab is killed do not notice it: they stay, and so does their memory."""
    environment = os.environ | {
        "TMPDIR": str(tmp_path),
        RUNS_VARIABLE: str(tmp_path / "runs"),
        CACHE_VARIABLE: str(kvlab_folders / "cache"),
        "MODEL": tiny_model_dir,
    }
    line = [sys.executable, "-c", LAB]
    with subprocess.Popen([*line, "wait"], env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        pids = [int(pid) for pid in first.stdout.readline().split()]
        assert len(pids) == 2
        assert blocks(pids)
        if stopped:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
        os.kill(first.pid, signal.SIGKILL)
        if not stopped:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        first.wait()
    if stopped:
        assert alive(pids) == pids
        assert blocks(pids)
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 1
    try:
        second = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=100, check=False)
        assert second.returncode == 0, second.stderr
        others = [int(pid) for pid in second.stdout.split()]
        faults.wait_for(lambda: not alive(others), 20)
        assert alive(pids) == []
        assert list(tmp_path.glob(f"{PREFIX}*")) == []
    finally:
        for pid in alive(pids):
            os.kill(pid, signal.SIGKILL)
