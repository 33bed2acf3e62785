"""What every fault is made with: signals, limits, small file systems; and a cold computation that says what is right.

kvlab is never patched: a fault comes from outside, as it would in life.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import kvlab
from kvlab.engine.loading import load_engine
from kvlab.engine.protocol import Branch
from kvlab.engine.torch_engine import TorchEngine
from kvlab.runtime.lab import Lab
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids, unpack_ids
from kvlab.store.events import Event

DOCUMENT = "A workflow of agents shares one long context and each agent reads it again. " * 6


@contextmanager
def one_thread() -> Iterator[None]:
    """A second one has less to do here than it takes from the workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Cold:
    """Greedy answers of an engine in this process that reuses nothing; each is computed once."""

    engine: TorchEngine
    answers: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = field(default_factory=dict)

    def greedy(self, ids: Sequence[int], n_tokens: int, stop_ids: frozenset[int]) -> tuple[int, ...]:
        """What follows ``ids``, at most ``n_tokens``, the stop token included."""
        asked = (tuple(ids), n_tokens)
        if asked not in self.answers:
            branch = Branch(pack_ids(ids), Sampling(n_tokens), stop_ids)
            with one_thread():
                self.answers[asked] = unpack_ids(self.engine.resume(branch, [], self.engine.new_payload).generated)
        return self.answers[asked]

    def next_logits(self, ids: Sequence[int]) -> Any:
        """Logits of what follows ``ids``, as numpy."""
        with one_thread():
            return self.engine.prefill(pack_ids(ids), [], self.engine.new_payload).last_logits.numpy()

    def prompt_of(self, generation: Any) -> tuple[int, ...]:
        """The ids that were fed before the first token of a :class:`kvlab.runtime.handles.Generation` was drawn."""
        text = (*generation.state.token_ids, generation.token_ids[-1])
        return text[: -len(generation.token_ids)]

    def require_right(self, lab: Lab, generation: Any) -> None:
        """Fails where the answer is not the cold one."""
        expected = self.greedy(self.prompt_of(generation), len(generation.token_ids), lab.core.tokenizer.stop_ids)
        assert generation.token_ids == expected


@pytest.fixture(scope="session")
def cold(tiny_model_dir: str) -> Cold:
    """The tiny model, cold, in this process."""
    return Cold(load_engine(tiny_model_dir))


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """Two workers whose states are mapped."""
    with make_lab(kv_budget="64 MiB", namespace="faults") as made:
        yield made


@pytest.fixture(scope="module")
def frames_lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """Two workers whose states cross as bytes."""
    with make_lab(same_host="frames", kv_budget="64 MiB", namespace="faults") as made:
        yield made


def pid_of(lab: Lab, worker: str) -> int:
    """The process of a worker of the lab's own."""
    return lab._cluster.pids[worker]


def up(lab: Lab) -> list[str]:
    """Workers that the lab may use now."""
    return sorted(worker.name for worker in lab.workers.values() if worker.address)


def wait_for(happened: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What ``happened`` says when it is true; fails where it never is."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def used_bytes(lab: Lab) -> int:
    """What a lab's budget counts once workers have let go of what nobody wants.

    States of an earlier test may still hang on the traceback of an error it expected.
    """
    gc.collect()
    catalog = lab.core.catalog
    catalog.reap()
    wait_for(lambda: not catalog.leaving.nbytes(), 15)
    return catalog.budget.used_bytes


@dataclass
class Faults:
    """What can be done to a lab's processes."""

    used_bytes: Callable[[Lab], int] = used_bytes
    pid_of: Callable[[Lab, str], int] = pid_of
    up: Callable[[Lab], list[str]] = up
    wait_for: Callable[..., Any] = wait_for

    def kill(self, lab: Lab, worker: str) -> None:
        """SIGKILL; the lab starts another one under its name."""
        os.kill(pid_of(lab, worker), signal.SIGKILL)

    def kill_and_see(self, lab: Lab, worker: str) -> None:
        """SIGKILL, and wait until the lab knows."""
        address = lab.workers[worker].address
        self.kill(lab, worker)
        wait_for(lambda: lab.workers[worker].address != address)

    def wait_for_all(self, lab: Lab) -> None:
        """Return when every worker is up (again)."""
        wait_for(lambda: len(up(lab)) == len(lab.workers))

    @contextmanager
    def stopped(self, *pids: int) -> Iterator[None]:
        """SIGSTOP inside the block, SIGCONT after it."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):  # killed meanwhile
                    os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def faults() -> Faults:
    """Kill, stop and wait."""
    return Faults()


@dataclass
class RandomKill:
    """SIGKILLs one worker at the ``at``-th event of a run."""

    lab: Lab
    at: int
    random: random.Random
    seen: int = 0
    victim: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        self._stop = self.lab.core.hub.listen(self._look)

    def _look(self, run: str, event: Event) -> None:
        if run in ("", "lab") or self.victim:
            return
        self.seen += 1
        if self.seen >= self.at:
            self.victim, self.where = self.random.choice(up(self.lab)), f"{event.kind} of {event.agent}"
            os.kill(pid_of(self.lab, self.victim), signal.SIGKILL)

    def over(self) -> None:
        """Stop looking; fails where nobody was killed."""
        self._stop()
        assert self.victim, f"only {self.seen} events, and {self.at} were waited for"


@pytest.fixture(scope="session")
def random_kill() -> type[RandomKill]:
    """A kill at a random event of a run."""
    return RandomKill


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB. Needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def edges_of(run: Any) -> dict[str, dict[str, Any]]:
    """The state edges of a run by their targets."""
    return {edge["target"]: edge for edge in run.tables["edges"].to_pylist()}


@pytest.fixture(scope="session")
def edges() -> Callable[[Any], dict[str, dict[str, Any]]]:
    """``edges(run)``: its state edges by target."""
    return edges_of


def agents_of(run: Any) -> dict[str, tuple[int, ...]]:
    """Token ids of every agent of a run."""
    return {node.id: run[node.id].token_ids for node in run.graph.nodes if node.sampling.max_new_tokens}


@pytest.fixture(scope="session")
def answers() -> Callable[[Any], dict[str, tuple[int, ...]]]:
    """``answers(run)``: what its agents said."""
    return agents_of


@pytest.fixture(scope="session")
def three_agents() -> Callable[..., kvlab.Workflow]:
    """``three_agents(document)``: one agent reads a document, two go on from its state."""

    def make(document: str = DOCUMENT, max_new_tokens: int = 24) -> kvlab.Workflow:
        wf = kvlab.Workflow("faults")
        first = wf.agent("first", [wf.context("paper", document), "Begin."], max_new_tokens=max_new_tokens)
        for name in ("left", "right"):
            wf.agent(name, f"Go {name}.", continues=first, max_new_tokens=max_new_tokens)
        return wf

    return make
