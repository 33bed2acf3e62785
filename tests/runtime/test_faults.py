"""A worker that is killed costs time, never the answer. Real SIGKILLs; the log proves where each one hit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kvlab
from kvlab.errors import TransferFailed
from kvlab.store.events import Event, Kind

DOCUMENT = "A workflow of agents shares one long context and each agent reads it again. " * 6
AGENTS = ["first", "left", "right"]


def workflow() -> Any:
    wf = kvlab.Workflow("faults")
    first = wf.agent("first", [wf.context("paper", DOCUMENT), "Begin."], max_new_tokens=24)
    for name in AGENTS[1:]:
        wf.agent(name, f"Go {name}.", continues=first, max_new_tokens=24)
    return wf


class KillAt:
    """Kills the worker that reports the first event that ``when`` accepts."""

    def __init__(self, lab: Any, when: Callable[[Event], bool]) -> None:
        self._lab, self._when = lab, when
        self.victim: str | None = None
        self.event: Event | None = None
        self.after: list[Event] = []
        self._stop = lab.core.hub.listen(self._look)
        self._lock = threading.Lock()

    def _look(self, run: str, event: Event) -> None:
        with self._lock:
            if self.victim is None and event.worker in self._lab._cluster.pids and self._when(event):
                self.victim, self.event = event.worker, event
                os.kill(self._lab._cluster.pids[event.worker], signal.SIGKILL)
            elif self.victim is not None:
                self.after.append(event)

    def done(self) -> None:
        self._stop()


@pytest.fixture(scope="module")
def reference(lab: Any) -> dict[str, tuple[int, ...]]:
    run = lab.run(workflow()).wait()
    return {name: run[name].token_ids for name in AGENTS}


@pytest.fixture
def slow_lab(make_lab: Any) -> Any:
    """Prefills in pieces of eight tokens, so that a kill can hit the middle of one."""
    with make_lab(prefill_chunk=8, kv_budget="1 GiB") as made:
        yield made


def _wait_for_workers(lab: Any, n: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while sum(1 for worker in lab.workers.values() if worker.address) < n:
        assert time.monotonic() < deadline, "the killed worker did not come back"
        time.sleep(0.1)


def test_killed_in_prefill(slow_lab: Any, reference: Any) -> None:
    kill = KillAt(slow_lab, lambda e: e.kind is Kind.PREFILL_CHUNK and 0 < (e.n_tokens or 0) < e.detail["total"])
    run = slow_lab.run(workflow()).wait()
    kill.done()
    assert kill.event is not None
    assert (kill.event.n_tokens or 0) < kill.event.detail["total"]
    finished = [e for e in kill.after if e.kind is Kind.ACTION_FINISHED and e.source == kill.event.source]
    assert all(e.action != kill.event.action for e in finished)
    assert any(e.kind is Kind.WORKER_LOST and e.worker == kill.victim for e in kill.after)
    assert {name: run[name].token_ids for name in AGENTS} == reference
    _wait_for_workers(slow_lab, 2)


def test_killed_in_decode(slow_lab: Any, reference: Any) -> None:
    seen: dict[str, int] = {}

    def third_token(event: Event) -> bool:
        if event.kind is Kind.TOKENS and event.agent in ("left", "right"):
            seen[event.agent] = seen.get(event.agent, 0) + 1
            return seen[event.agent] == 3
        return False

    kill = KillAt(slow_lab, third_token)
    run = slow_lab.run(workflow()).wait()
    kill.done()
    assert kill.event is not None
    finished = [e for e in kill.after if e.kind is Kind.ACTION_FINISHED and e.source == kill.event.source]
    assert all(e.action != kill.event.action for e in finished)
    assert any(e.kind is Kind.WORKER_LOST and e.worker == kill.victim for e in kill.after)
    assert {name: run[name].token_ids for name in AGENTS} == reference


@pytest.mark.slow
@pytest.mark.parametrize("end", ["worker-0", "worker-1"], ids=["sender", "receiver"])
def test_killed_in_transfer(make_lab: Any, wide_model_dir: str, end: str) -> None:
    """The log shows the payload sent, and a worker lost before it was received."""
    with make_lab(model=wide_model_dir, same_host="frames", kv_budget="2 GiB") as lab:
        state = lab.materialize(DOCUMENT * 36, worker="worker-0")
        assert state.nbytes > 200 * 2**20
        before = state.next_logits()
        recipes = {segment.recipe for segment in state.record.segments}
        events: list[Event] = []
        killed = threading.Event()

        def look(run: str, event: Event) -> None:
            events.append(event)
            if event.kind is Kind.SEGMENT_SENT and event.segment in recipes and not killed.is_set():
                killed.set()
                os.kill(lab._cluster.pids[end], signal.SIGKILL)

        stop = lab.core.hub.listen(look)
        if end == "worker-0":
            state.transfer("worker-1", keep=True)
        else:
            with pytest.raises(TransferFailed, match="lost on the way"):
                state.transfer("worker-1", keep=True)
        lab.core.hub.settle()
        stop()
        kinds = [(event.kind, event.worker) for event in events if event.segment in recipes or event.worker == end]
        lost = kinds.index((Kind.WORKER_LOST, end))
        assert (Kind.SEGMENT_SENT, "worker-0") in kinds[:lost]
        assert (Kind.SEGMENT_RECEIVED, "worker-1") not in kinds[:lost]
        _wait_for_workers(lab, 2)
        assert abs(state.next_logits() - before).max() < 1e-4
        assert state.phase == "resident"


def test_all_workers_killed_come_back(make_lab: Any, oracle: Any) -> None:
    with make_lab(workers=1, kv_budget="1 GiB") as lab:
        state = lab.materialize(DOCUMENT)
        before = state.next_logits()
        os.kill(lab._cluster.pids["worker-0"], signal.SIGKILL)
        time.sleep(0.5)
        _wait_for_workers(lab, 1)
        assert abs(state.next_logits() - before).max() < 1e-4


def test_what_begins_while_no_worker_is_up_waits_for_one(make_lab: Any) -> None:
    """A held action, a verb and a new run: none of them gives up before the worker is started again."""
    with make_lab(workers=1, kv_budget="1 GiB", namespace="alone") as lab:
        undisturbed = lab.run(workflow()).wait()

        held = lab.run(workflow(), paused=True)
        while held.pending is None:
            time.sleep(0.01)
        before = lab.core.workers["worker-0"].address
        os.kill(lab._cluster.pids["worker-0"], signal.SIGKILL)
        while lab.core.workers["worker-0"].address == before:
            time.sleep(0.01)
        with ThreadPoolExecutor() as pool:
            held.play()
            verb = pool.submit(lab.materialize, "Something else.")
            fresh = pool.submit(lab.run, workflow(), workers=1)
            assert lab.core.n_up == 0
            assert not verb.done()
            assert not fresh.done()
            assert verb.result(timeout=100).n_tokens > 0
        for run in (held.wait(), fresh.result(timeout=100).wait()):
            assert {name: run[name].token_ids for name in AGENTS} == {
                name: undisturbed[name].token_ids for name in AGENTS
            }


@pytest.mark.slow
@pytest.mark.parametrize("end", ["sender", "receiver"])
def test_killed_in_a_hybrid(make_lab: Any, wide_model_dir: str, end: str) -> None:
    """Half of the state is on a slow link and the other half is being computed when one end dies."""
    with make_lab(
        model=wide_model_dir, same_host="frames", link_rate="20 Mbit/s", kv_budget="1 GiB", namespace=f"hybrid-{end}"
    ) as lab:
        state = lab.materialize("Half of it travels, half of it is made again. " * 24, worker="worker-0")
        expected = state.resume(" so", max_new_tokens=6, worker="worker-0").token_ids
        victim = lab.workers["worker-0" if end == "sender" else "worker-1"].pid
        sent: list[str] = []
        stop = lab.core.hub.listen(
            lambda _, event: sent.append(event.segment) if event.kind is Kind.SEGMENT_SENT and event.nbytes else None
        )
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(state.resume, " so", max_new_tokens=6, worker="worker-1", how="hybrid")
            deadline = time.monotonic() + 30
            while not sent and not answer.done() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert sent, "nothing was on the wire"
            assert not answer.done()
            os.kill(victim, signal.SIGKILL)
            assert answer.result(timeout=100).token_ids == expected
        stop()
