"""A lab starts anywhere, and when it ends, however it ends, nothing of it is left."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvlab.config import CACHE_VARIABLE, RUNS_VARIABLE
from kvlab.cost.roads import roads_for
from kvlab.cost.world import Edge
from kvlab.errors import ClusterError, InvalidInput, KVLabError
from kvlab.runtime import cluster, opening, scratch
from kvlab.runtime.planning import Planner, path_of

TEXT = "Keys and values of a prefix are the same for every question that follows it. "


def poll(ready: Callable[[], Any], seconds: float = 10) -> Any:
    """What ``ready`` says at last, when it is true or time is up."""
    deadline = time.monotonic() + seconds
    while not (found := ready()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def living(pids: list[int]) -> list[int]:
    return [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def script(
    tmp_path: Path, tiny_model_dir: str, kvlab_folders: Path
) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """``script(code)``: start a file of that code, as a person would write it, with temporary files in ``tmp_path``."""
    started: list[subprocess.Popen[str]] = []
    environment = os.environ | {
        "TMPDIR": str(tmp_path),
        RUNS_VARIABLE: str(tmp_path / "runs"),
        CACHE_VARIABLE: str(kvlab_folders / "cache"),
        "MODEL": tiny_model_dir,
    }

    def start(code: str) -> subprocess.Popen[str]:
        file = tmp_path / f"script_{len(started)}.py"
        file.write_text("import os, sys\nimport kvlab\nfrom kvlab.progress import Progress\n" + code)
        process = subprocess.Popen(
            [sys.executable, str(file)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def scratch_folders(where: Path) -> list[str]:
    return [folder.name for folder in where.glob(f"{scratch.PREFIX}*")]


def own_folders() -> set[Path]:
    """Of labs of this process; others may run beside it."""
    return set(Path(tempfile.gettempdir()).glob(f"{scratch.PREFIX}{os.getpid()}-*"))


def listening(pids: list[int]) -> list[tuple[int, str]]:
    """(pid, local address in hex) of every listening TCP socket of these processes, from /proc/net."""
    found = []
    for pid in pids:
        inodes = set()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            file = Path(f"/proc/{pid}/net/{table}")
            for line in file.read_text().splitlines()[1:] if file.exists() else ():
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    found.append((pid, fields[1].rpartition(":")[0]))
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def test_everything_listens_on_loopback_alone(lab: Any) -> None:
    pids = [os.getpid(), *lab._cluster.pids.values()]
    found = listening(pids)
    assert {pid for pid, _ in found} == set(pids)
    assert {address for _, address in found} <= LOOPBACK


def test_the_same_arguments_give_the_running_lab_and_others_another(lab: Any, make_lab: Callable[..., Any]) -> None:
    assert make_lab(kv_budget="1 GiB") is lab
    with make_lab(kv_budget="1 GiB", processes=False, namespace="other") as other:
        assert other is not lab
        state = other.materialize(TEXT)
        assert state.n_tokens == lab.materialize(TEXT).n_tokens
        assert other.states["state"].to_pylist() == [state.id]
    assert other.closed
    assert not lab.closed
    other.close()
    with pytest.raises(KVLabError, match="closed"):
        other.materialize(TEXT)
    assert "closed" in repr(other)
    with pytest.raises(InvalidInput, match="wrokers=") as caught:
        make_lab(wrokers=3)
    assert "workers=" in caught.value.hint


def test_who_asks_for_the_same_lab_at_once_gets_the_same_one(make_lab: Callable[..., Any]) -> None:
    arguments = {"kv_budget": "1 GiB", "processes": False, "workers": 1, "namespace": "at once"}
    with ThreadPoolExecutor(3) as pool:
        made = [one.result() for one in [pool.submit(make_lab, **arguments) for _ in range(3)]]
    assert made[0] is made[1] is made[2]
    made[0].close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"kv_budget": ""}, {"kv_budget": "GiB"}, {"kv_budget": 0}, {"prefill_chunk": 1.5}, {"prefill_chunk": float("nan")},
        {"prefill_chunk": None}, {"workers": True}, {"workers": 0}, {"namespace": "a/b"}, {"namespace": "\ud800"},
    ],
    ids=ascii,
)  # fmt: skip
def test_a_lab_that_cannot_be_is_refused_before_anything_starts(
    make_lab: Callable[..., Any], wrong: dict[str, Any]
) -> None:
    folders = own_folders()
    with pytest.raises(InvalidInput) as caught:
        make_lab(**wrong)
    assert caught.value.hint
    assert own_folders() == folders


def test_a_state_on_another_worker_can_come_to_the_one_that_is_asked_for(lab: Any) -> None:
    """A limit to some workers hides no state that lies elsewhere."""
    record = lab.materialize(TEXT * 3 + "elsewhere", worker="worker-0").record
    view = Planner(lab.core).view(frozenset({"worker-1"}))
    found = roads_for(Edge("e", "a", "b", path_of(record), 3), view)
    assert {(a.how, a.worker) for a in found} == {("map", "worker-1"), ("recompute", "worker-1")}


def test_a_closed_lab_leaves_nothing(make_lab: Callable[..., Any], lab: Any) -> None:
    folders = own_folders()
    began = time.time()
    # The first heartbeat of the other lab's workers opens a connection to its scheduler, which lives in this process.
    assert poll(
        lambda: all(one["last_seen"] > began for one in lab.core.client.scheduler_info()["workers"].values()), 30
    )
    before = len(os.listdir("/proc/self/fd"))
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    made = make_lab(workers=1, kv_budget="1 GiB", namespace="short-lived")
    pids = list(made._cluster.pids.values())
    assert living(pids) == pids
    assert own_folders() > folders
    state = made.materialize(TEXT)
    assert state.resume("on", max_new_tokens=2).token_ids
    made.close()
    assert living(pids) == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} == children
    assert own_folders() == folders
    assert poll(lambda: len(os.listdir("/proc/self/fd")) <= before), "descriptors stayed open"
    made.close()


UNGUARDED = """
import asyncio

async def main():
    lab = kvlab.Lab(model=os.environ["MODEL"], workers=1, kv_budget="1 GiB", progress=Progress("nothing"))
    state = lab.materialize("one two three")
    wf = kvlab.Workflow("script")
    wf.agent("only", "Say something.", max_new_tokens=3)
    run = lab.run(wf).wait()
    await asyncio.sleep(0)
    print(len(run["only"].token_ids), state.resume("x", max_new_tokens=2).n_reused == state.n_tokens)
    return lab

lab = asyncio.run(main())
print(*lab._cluster.pids.values(), flush=True)
wf = kvlab.Workflow("long")
wf.agent("agent", "one two three four " * 20, max_new_tokens=500)
while True:
    lab.run(wf).wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_script_without_a_guard_works_in_an_event_loop_and_leaves_nothing_when_stopped(
    script: Callable[[str], Any], tmp_path: Path, ending: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = script(UNGUARDED)
    answer, line = process.stdout.readline(), process.stdout.readline()
    assert line, process.stderr.read()
    n_tokens, reused = answer.split()
    assert 1 <= int(n_tokens) <= 3
    assert reused == "True"
    pids = [int(pid) for pid in line.split()]
    assert living(pids) == pids
    assert len(scratch_folders(tmp_path)) == 1
    time.sleep(0.3)
    process.send_signal(ending)
    _, err = process.communicate(timeout=20)
    assert poll(lambda: not living(pids)), "workers outlived their starter"
    if ending is signal.SIGKILL:
        assert len(scratch_folders(tmp_path)) == 1
        assert list(tmp_path.glob(f"{scratch.PREFIX}*/tls/key.pem"))  # goes with the folder
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        scratch.remove_scratch(scratch.make_scratch())
    else:
        assert "KeyboardInterrupt" in err
        assert process.returncode != 0
    assert scratch_folders(tmp_path) == []


@pytest.fixture
def refused_model(tiny_model_dir: str, tmp_path: Path) -> str:
    """A folder whose model the engine refuses when it is loaded."""
    folder = tmp_path / "refused"
    shutil.copytree(tiny_model_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("processes", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_model_that_workers_refuse_is_named_and_leaves_nothing(
    make_lab: Callable[..., Any], refused_model: str, processes: bool
) -> None:
    folders = own_folders()
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    started = time.monotonic()
    with pytest.raises(KVLabError, match="rope type dynamic") as caught:
        make_lab(model=refused_model, processes=processes, workers=1, kv_budget="1 GiB")
    assert time.monotonic() - started < opening.START_SECONDS / 2
    assert "use a model" in str(caught.value)
    assert {child.pid for child in psutil.Process().children(recursive=True)} == children
    assert own_folders() == folders


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Somebody's scheduler: a process of its own with Dask's own settings, and its address."""
    folder = tmp_path_factory.mktemp("scheduler")
    line = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    line += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(folder / "where.json")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log)
    assert poll(lambda: (folder / "where.json").exists() and (folder / "where.json").read_text().endswith("}"), 30)
    yield process, json.loads((folder / "where.json").read_text())["address"]
    process.terminate()
    process.wait(10)


def test_a_scheduler_that_does_not_answer_is_named(
    make_lab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.CONNECT_SECONDS <= 10
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"tcp://127\.0\.0\.1:9") as caught:
        make_lab(address="tcp://127.0.0.1:9")
    assert time.monotonic() - started < 6
    assert "dask scheduler" in caught.value.hint
    assert "kvlab worker tcp://127.0.0.1:9" in caught.value.hint


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x y"])
def test_a_scheduler_that_is_not_there_leaves_nothing_for_the_garbage_collector(
    make_lab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """A client that has not connected would be closed there, in any thread, and wait for a lock which that one holds."""
    from distributed import Client

    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)

    def clients() -> set[int]:
        return {id(one) for one in gc.get_objects() if issubclass(type(one), Client)}

    def loops() -> int:
        return sum(thread.name == "IO loop" for thread in threading.enumerate())

    before, running = clients(), loops()
    with pytest.raises(ClusterError) as kept:
        make_lab(address=address)
    assert clients() <= before, kept
    assert loops() <= running


def test_a_scheduler_without_workers_is_named(
    make_lab: Callable[..., Any], scheduler: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FOREIGN_SECONDS", 0.5)
    with pytest.raises(ClusterError, match="0 of 1 workers") as caught:
        make_lab(address=scheduler[1])
    assert "kvlab worker" in caught.value.hint


def test_a_foreign_cluster_is_used_and_left_as_it_was(
    make_lab: Callable[..., Any], scheduler: tuple[Any, str], tiny_model_dir: str, tmp_path: Path, oracle: Any
) -> None:
    process, address = scheduler
    plain = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1",
         "--local-directory", str(tmp_path)], stderr=subprocess.DEVNULL,
    )  # fmt: skip
    worker = None
    try:
        with pytest.raises(ClusterError, match="none of the 1 workers .*serves") as caught:
            make_lab(address=address)
        assert "kvlab worker" in caught.value.hint
        with (tmp_path / "log").open("wb") as log:
            line = [sys.executable, "-m", "kvlab", "worker", address, "--model", tiny_model_dir, "--name", "mine"]
            worker = subprocess.Popen([*line, "--local-directory", str(tmp_path)], stdout=log, stderr=log)
        with distributed_client(address) as client:
            assert poll(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2, 60)
        for _ in range(2):
            with make_lab(address=address, kv_budget="1 GiB") as lab:
                assert set(lab.workers) == {"mine"}
                state = lab.materialize(TEXT)
                generation = state.resume("The planner", max_new_tokens=5)
                prompt = [*generation.state.token_ids, generation.token_ids[-1]][: -len(generation.token_ids)]
                assert list(generation.token_ids) == oracle.greedy(prompt, 5, lab.core.tokenizer.stop_ids)
                del state, generation
            assert process.poll() is worker.poll() is plain.poll() is None
        with distributed_client(address) as client:
            info = client.scheduler_info(n_workers=-1)["workers"]
            assert {seen["name"] for seen in info.values()} >= {"mine"}
            assert poll(lambda: not client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))
    finally:
        for started in (plain, worker):
            if started is not None:
                started.terminate()
                started.wait(15)


def distributed_client(address: str) -> Any:
    from distributed import Client

    return Client(address, timeout=10, set_as_default=False)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 4096])
def test_what_is_no_scheduler_is_named_and_not_waited_for(
    make_lab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    """Something listens there, and says nothing, or something else."""
    import socket

    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[Any] = []

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connection.sendall(says)
                kept.append(connection)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ClusterError, match="does not answer"):
            make_lab(address=f"tcp://127.0.0.1:{listening.getsockname()[1]}")
    assert poll(lambda: not any(one.name == "kvlab-ask" for one in threading.enumerate()), 15), "still asked"
    for connection in kept:
        connection.close()


def long_workflow() -> Any:
    import kvlab

    wf = kvlab.Workflow("long")
    wf.agent("writer", "Write on and on.", max_new_tokens=400)
    return wf


def test_closing_a_lab_cancels_what_runs_and_its_record_says_so(make_lab: Callable[..., Any]) -> None:
    import kvlab

    lab = make_lab(namespace="closing")
    run = lab.run(long_workflow())
    deadline = time.monotonic() + 20
    while not run.world.rows["agents"] and time.monotonic() < deadline:
        time.sleep(0.05)
    lab.close()
    assert run.status == "cancelled"
    saved = kvlab.open_run(run.path)
    assert saved.complete
    assert saved.world.status == "cancelled"


@pytest.mark.slow
def test_a_frozen_worker_does_not_hold_up_a_cancelled_run(make_lab: Callable[..., Any]) -> None:
    with make_lab(namespace="frozen") as lab:
        run = lab.run(long_workflow())
        deadline = time.monotonic() + 20
        while not run.world.rows["agents"] and time.monotonic() < deadline:
            time.sleep(0.05)
        pids = [worker.pid for worker in lab.workers.values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            run.cancel()
            run.settle(20)
            assert run.status == "cancelled"
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
