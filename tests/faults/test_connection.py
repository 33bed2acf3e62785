"""A connection that is cut or stands still: what was on it comes later, comes by another one, or is made again."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvlab.bench.namespaces import HUB, TestBed, why_not
from kvlab.bench.testbed import Cluster
from kvlab.config import CACHE_VARIABLE, RUNS_VARIABLE
from kvlab.store.events import Event, Kind

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 9
STOPPED_SECONDS = 1.5
_PIDFD_GETFD = 438


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def cut(pid: int, port: int) -> int:
    """Shut down every connection that process ``pid`` has to ``port``, as a lost network does. Returns how many.

    Skips where the system does not lend a process's descriptors to another.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    held = os.pidfd_open(pid)
    n_cut = 0
    try:
        for connection in psutil.Process(pid).net_connections(kind="tcp"):
            if connection.raddr and connection.raddr.port == port and connection.status == psutil.CONN_ESTABLISHED:
                lent = libc.syscall(_PIDFD_GETFD, held, connection.fd, 0)
                if lent < 0 and ctypes.get_errno() == errno.EBADF:  # it closed that one itself meanwhile
                    continue
                if lent < 0:
                    pytest.skip(f"no descriptor of another process can be had: {os.strerror(ctypes.get_errno())}")
                with socket.socket(fileno=lent) as borrowed:
                    borrowed.shutdown(socket.SHUT_RDWR)
                n_cut += 1
    finally:
        os.close(held)
    return n_cut


@pytest.fixture(scope="module")
def slow_wire(make_lab: Any) -> Iterator[Any]:
    """Links on which a state is for a second."""
    with make_lab(same_host="frames", link_rate="4 Mbit/s", kv_budget="64 MiB", namespace="cut") as made:
        yield made


class AtFirstByte:
    """Calls ``then`` when a state's bytes begin to leave, and keeps what happens to it after that."""

    def __init__(self, lab: Any, state: Any, then: Any) -> None:
        self.after: list[Event] = []
        self.found: list[int] = []
        self._recipes = {segment.recipe for segment in state.record.segments}
        self._then, self._lock = then, threading.Lock()
        self.undo = lab.core.hub.listen(self._look)

    def _look(self, run: str, event: Event) -> None:
        if event.segment not in self._recipes and event.kind not in (Kind.WORKER_LOST, Kind.WORKER_JOINED):
            return
        with self._lock:
            if self.found:
                self.after.append(event)
            elif event.kind is Kind.SEGMENT_SENT and event.nbytes:
                self.found.append(self._then())

    def received_by(self) -> list[str | None]:
        """Who says that it has a segment of the state, as soon as somebody does: workers tell a moment later."""
        deadline = time.monotonic() + 10
        while not (came := [e.worker for e in self.after if e.kind is Kind.SEGMENT_RECEIVED]):
            assert time.monotonic() < deadline, "nobody has it"
            time.sleep(0.02)
        return came


def test_between_workers_in_the_middle_of_a_transfer(slow_wire: Any, cold: Any, faults: Any) -> None:
    lab = slow_wire
    state = lab.materialize(TEXT, worker="worker-0")
    assert state.nbytes * 8 > 4e6 / 2  # half a second at least
    to = port_of(lab.workers["worker-0"].address)
    watch = AtFirstByte(lab, state, lambda: cut(faults.pid_of(lab, "worker-1"), to))
    state.transfer("worker-1", keep=True)
    assert watch.received_by() == ["worker-1"]
    watch.undo()
    assert watch.found
    assert watch.found[0] >= 1
    assert set(state.workers) == {"worker-0", "worker-1"}
    for name in ("worker-1", "worker-0"):
        answer = state.resume(" so", max_new_tokens=4, worker=name)
        cold.require_right(lab, answer)
        assert answer.how == "in place"


@pytest.mark.parametrize("end", ["worker-0", "worker-1"], ids=["sender", "receiver"])
def test_a_worker_that_is_stopped_in_the_middle_of_a_transfer_and_goes_on(
    slow_wire: Any, cold: Any, faults: Any, end: str
) -> None:
    lab = slow_wire
    state = lab.materialize(TEXT + end, worker="worker-0")
    pid = faults.pid_of(lab, end)
    going_on = threading.Timer(STOPPED_SECONDS, os.kill, (pid, signal.SIGCONT))

    def stop() -> int:
        os.kill(pid, signal.SIGSTOP)
        going_on.start()
        return pid

    watch = AtFirstByte(lab, state, stop)
    try:
        state.transfer("worker-1", keep=True)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert watch.received_by() == ["worker-1"]
    watch.undo()
    assert watch.found == [pid]
    assert not going_on.is_alive(), "it came while the worker was stopped"
    assert not any(e.kind is Kind.WORKER_LOST for e in watch.after)
    answer = state.resume(" so", max_new_tokens=4, worker="worker-1")
    cold.require_right(lab, answer)
    assert answer.how == "in place"


@pytest.mark.slow
def test_between_a_worker_and_the_scheduler(
    slow_wire: Any, cold: Any, faults: Any, answers: Any, three_agents: Any
) -> None:
    """The worker takes itself for lost, ends, and is started again."""
    lab = slow_wire
    undisturbed = answers(lab.run(three_agents()).wait())
    state = lab.materialize(TEXT + "scheduler", worker="worker-1")
    run = lab.run(three_agents())
    faults.wait_for(lambda: run.world.rows["agents"])
    address = lab.workers["worker-1"].address
    assert cut(faults.pid_of(lab, "worker-1"), port_of(lab._cluster._address)) >= 1
    assert answers(run.wait(90)) == undisturbed
    cold.require_right(lab, state.resume(" so", max_new_tokens=4))
    faults.wait_for_all(lab)
    assert lab.workers["worker-1"].address != address


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("whole", [True, False], ids=["unplugged", "from the other one alone"])
def test_a_host_that_is_cut_off(whole: bool, tiny_model_dir: str, tmp_path: Path) -> None:
    """Two hosts in network namespaces: one loses its links, or one of them, while a state is on its way to it. Needs root."""
    reason = why_not("tbf")
    if reason:
        pytest.skip(reason)
    with TestBed(n_hosts=2, rate="4mbit") as bed:
        cluster = Cluster(bed, tmp_path)
        cluster.worker("host-0", Path(tiny_model_dir), "frames", name="worker-0")
        cluster.worker("host-1", Path(tiny_model_dir), "frames", name="worker-1")
        script = Path(__file__).with_name("loses_a_host.py")
        environment = os.environ | {CACHE_VARIABLE: str(tmp_path / "cache"), RUNS_VARIABLE: str(tmp_path / "runs")}
        ip = shutil.which("ip")
        unplug = ["-n", bed.namespace(HUB), "link", "set", "port-1", "down"]
        part = ["-n", bed.namespace("host-1"), "route", "add", "blackhole", f"{bed.address('host-0')}/32"]
        told = json.dumps([str(ip), *(unplug if whole else part)])
        line = [sys.executable, str(script), cluster.address, tiny_model_dir, told]
        client = bed.run_in(HUB, line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        printed, complaint = client.communicate(timeout=200)
        assert client.returncode == 0, complaint[-3000:]
    found = json.loads(printed)
    assert found["unplugged"]
    assert found["transfer"] == "TransferFailed"
    assert found["said"] == found["expected"]
    assert found["up"] == (["worker-0"] if whole else ["worker-0", "worker-1"])
    assert found["there"] == (None if whole else [found["expected"], "recompute"])
    assert found["run"] == found["undisturbed"]
