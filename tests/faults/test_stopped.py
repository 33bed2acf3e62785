"""A worker that is stopped and goes on: time passes, answers stay."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Self

import psutil
import pytest
from distributed import SchedulerPlugin

from kvlab.errors import Cancelled, NoRoom
from kvlab.store.events import Event, Kind


class StopAtFirstToken:
    """SIGSTOPs the worker that reports the first token of a run."""

    def __init__(self, lab: Any) -> None:
        self.pid = 0
        self.happened = threading.Event()
        self._lab = lab
        self.undo = lab.core.hub.listen(self._look)

    def _look(self, run: str, event: Event) -> None:
        if event.kind is Kind.TOKENS and not self.pid:
            self.pid = self._lab._cluster.pids[event.worker]
            os.kill(self.pid, signal.SIGSTOP)
            self.happened.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)


@pytest.mark.slow
def test_stopped_for_a_moment_and_continued(lab: Any, three_agents: Any, answers: Any) -> None:
    undisturbed = answers(lab.run(three_agents()).wait())
    with StopAtFirstToken(lab) as stop:
        run = lab.run(three_agents())
        assert stop.happened.wait(20)
        time.sleep(1.5)
        assert not run.over
    assert answers(run.wait(60)) == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_stopped_for_so_long_that_its_work_goes_to_another(
    make_lab: Any, three_agents: Any, answers: Any, faults: Any, cold: Any
) -> None:
    with make_lab(kv_budget="64 MiB", namespace="stopped", same_host="frames") as lab:
        undisturbed = answers(lab.run(three_agents()).wait())
        with StopAtFirstToken(lab) as stop:
            run = lab.run(three_agents())
            assert stop.happened.wait(20)
            # While it is still stopped: the scheduler misses it after half a minute.
            assert answers(run.wait(150)) == undisturbed
            state = lab.materialize("Made while the other one is away.")
        faults.wait_for_all(lab)
        cold.require_right(lab, state.resume(" so", max_new_tokens=3))
        assert answers(lab.run(three_agents()).wait()) == undisturbed


@pytest.mark.slow
def test_a_spill_that_is_given_up_leaves_no_file_when_its_worker_goes_on(make_lab: Any, faults: Any, cold: Any) -> None:
    with make_lab(kv_budget="64 MiB", namespace="stopped-spill", spill_bytes="1 MiB") as lab:
        state = lab.materialize("Written by a worker that is stopped for too long. ", worker="worker-0")
        folder, pid = lab._scratch / "spilled", lab._cluster.pids["worker-0"]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(NoRoom, match="could not be written"):
                state.spill()
            assert list(folder.iterdir()) == []
        finally:
            os.kill(pid, signal.SIGCONT)
        # Whatever it was at, or is told to do again, is done by then.
        assert state.resume(" so", max_new_tokens=3, worker="worker-0").n_reused == state.n_tokens
        assert list(folder.iterdir()) == []
        assert lab.core.catalog.disk.used_bytes == 0
        cold.require_right(lab, state.resume(" so", max_new_tokens=2))
        assert state.spill() == state.nbytes


def stop_at_first_answer(pids: dict[str, int]) -> SchedulerPlugin:
    """SIGSTOPs the worker whose answer the scheduler has just heard of, before anybody can fetch it."""

    class StopAtAnswer(SchedulerPlugin):
        name = "stop-at-first-answer"
        stopped = 0

        def transition(self, key: Any, start: str, finish: str, *args: Any, worker: str = "", **kwargs: Any) -> None:
            if finish == "memory" and str(key).startswith("meta-kv-") and not self.stopped:
                self.stopped = pids[worker]
                os.kill(self.stopped, signal.SIGSTOP)

    return StopAtAnswer()


@pytest.mark.slow
def test_a_cancelled_run_gives_up_on_an_answer_that_nobody_hands_over(
    make_lab: Any, three_agents: Any, answers: Any, faults: Any
) -> None:
    with make_lab(kv_budget="64 MiB", namespace="stopped-answer") as lab:
        undisturbed = answers(lab.run(three_agents()).wait())
        pids = {worker.address: faults.pid_of(lab, name) for name, worker in lab.workers.items()}
        other = three_agents("Another paper, which no run has read so far. ")
        lab.core.client.register_plugin(stop_at_first_answer(pids))
        try:
            run = lab.run(other)
            stopped = faults.wait_for(
                lambda: [pid for pid in pids.values() if psutil.Process(pid).status() == "stopped"]
            )
            began = time.monotonic()
            with pytest.raises(Cancelled):
                run.cancel().wait(60)
            assert time.monotonic() - began < 20  # the scheduler would miss a silent worker after half a minute
            assert psutil.Process(*stopped).status() == "stopped"
        finally:
            lab.core.client.unregister_scheduler_plugin("stop-at-first-answer")
            for pid in pids.values():
                os.kill(pid, signal.SIGCONT)
        assert answers(lab.run(three_agents()).wait()) == undisturbed
