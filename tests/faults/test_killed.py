"""A worker that is killed costs time, never the answer, whenever it happens; and the edge says what it cost.

Kills in the middle of a prefill, of a decode, of a transfer and of a hybrid are in ``tests/runtime/test_faults.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvlab
from kvlab.workloads import build

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 3


def test_before_a_transfer_the_state_is_made_again_where_it_is_wanted(frames_lab: Any, cold: Any, faults: Any) -> None:
    state = frames_lab.materialize(TEXT + "before", worker="worker-0")
    faults.kill_and_see(frames_lab, "worker-0")
    answer = state.resume(" so", max_new_tokens=4, worker="worker-1")
    cold.require_right(frames_lab, answer)
    # Nobody had it any more: all of it was fed again, whatever had been planned.
    assert (answer.how, answer.n_reused) == ("recompute", 0)
    assert answer.n_prefilled == len(cold.prompt_of(answer))
    faults.wait_for_all(frames_lab)


def test_after_a_transfer_the_copy_that_is_left_serves(frames_lab: Any, cold: Any, faults: Any) -> None:
    frames_lab.core.catalog.reap()
    used = frames_lab.core.catalog.budget.used_bytes
    state = frames_lab.materialize(TEXT + "kept", worker="worker-0").transfer("worker-1", keep=True)
    assert frames_lab.core.catalog.budget.used_bytes - used == 2 * state.nbytes
    faults.kill_and_see(frames_lab, "worker-0")
    answer = state.resume(" so", max_new_tokens=4)
    cold.require_right(frames_lab, answer)
    assert (answer.how, answer.n_reused) == ("in place", state.n_tokens)
    faults.wait_for(lambda: frames_lab.core.catalog.budget.used_bytes - used == answer.state.nbytes, 15)
    faults.wait_for_all(frames_lab)


def test_after_a_transfer_that_left_no_other_copy_it_is_made_again(frames_lab: Any, cold: Any, faults: Any) -> None:
    state = frames_lab.materialize(TEXT + "moved", worker="worker-0").transfer("worker-1")
    assert state.workers == ("worker-1",)
    faults.kill_and_see(frames_lab, "worker-1")
    answer = state.resume(" so", max_new_tokens=4)
    cold.require_right(frames_lab, answer)
    assert (answer.how, answer.n_reused) == ("recompute", 0)
    faults.wait_for_all(frames_lab)


def test_a_mapper_keeps_what_the_maker_took_with_it(lab: Any, cold: Any, faults: Any) -> None:
    state = lab.materialize(TEXT + "mapped", worker="worker-0").transfer("worker-1", keep=True)
    faults.kill_and_see(lab, "worker-0")
    answer = state.resume(" so", max_new_tokens=4)
    cold.require_right(lab, answer)
    assert (answer.how, answer.n_reused) == ("in place", state.n_tokens)
    faults.wait_for_all(lab)


def test_the_edge_says_what_was_planned_what_was_done_and_why(
    frames_lab: Any, faults: Any, three_agents: Any, answers: Any, edges: Any
) -> None:
    """Killed at the gate: the state is gone when its edge is carried out."""
    undisturbed = answers(frames_lab.run(three_agents(), workers=["worker-0"]).wait())
    run = frames_lab.run(three_agents(), workers=["worker-0"], paused=True)
    run.play(until="left")
    faults.wait_for(lambda: "first" in run.states and run.pending is not None)
    stopped = faults.pid_of(frames_lab, "worker-0")
    with faults.stopped(stopped):  # it takes the order, and never carries it out
        run.play()
        faults.wait_for(lambda: edges(run).get("left"))
        faults.kill(frames_lab, "worker-0")
    run.wait()
    assert answers(run) == undisturbed
    for agent in ("left", "right"):
        edge = edges(run)[agent]
        assert (edge["chosen"], edge["actual_how"]) == ("in place", "recompute")
        assert "worker-0" in edge["because"]
        assert edge["because"].startswith("planned in place")
    faults.wait_for_all(frames_lab)


N_POINTS = 20


@pytest.fixture(scope="module")
def many_workers(make_lab: Callable[..., Any]) -> Iterator[Any]:
    """Three, so that two go on while one comes back. Prefills in small pieces have many moments to be killed in."""
    with make_lab(workers=3, prefill_chunk=8, kv_budget="64 MiB", namespace="points") as made:
        yield made


@pytest.mark.timeout(300)
def test_twenty_random_moments(many_workers: Any, faults: Any, random_kill: Any, answers: Any) -> None:
    """Answers are those of the run in which nobody died. Which moments and which workers is drawn from a seed."""
    flows = [build(name, TEXT, max_new_tokens=6) for name in ("tree", "debate")]
    drawn = random.Random(20)
    undisturbed, n_events = [], []
    for flow in flows:
        run = many_workers.run(flow).wait()
        undisturbed.append(answers(run))
        n_events.append(sum(bool(event["action"]) for event in run.events.to_pylist()))
    hit: list[str] = []
    for number in range(N_POINTS):
        which = number % len(flows)
        # Two are left then, or one: a worker is killed also while another one comes back.
        faults.wait_for(lambda: len(faults.up(many_workers)) >= 2)
        kill = random_kill(many_workers, drawn.randrange(1, n_events[which] * 3 // 4), drawn)
        run = many_workers.run(flows[which])
        run.wait()
        kill.over()
        hit.append(kill.where)
        assert answers(run) == undisturbed[which], f"point {number}: {kill.victim} killed at {kill.where}"
    assert len(set(hit)) > N_POINTS // 3, hit  # the moments are not all alike


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(600)
def test_three_random_moments_on_smollm2(
    make_lab: Any, smollm2: Path, faults: Any, random_kill: Any, answers: Any
) -> None:
    flow = build("chain", kvlab.sample_text()[:1500], max_new_tokens=12)
    drawn = random.Random(3)
    with make_lab(model=str(smollm2), prefill_chunk=64, kv_budget="1 GiB", namespace="points") as lab:
        whole = lab.run(flow).wait()
        undisturbed = answers(whole)
        n_events = sum(bool(event["action"]) for event in whole.events.to_pylist())
        for number in range(3):
            faults.wait_for_all(lab)
            kill = random_kill(lab, drawn.randrange(1, n_events * 3 // 4), drawn)
            run = lab.run(flow).wait()
            kill.over()
            assert answers(run) == undisturbed, f"point {number}: {kill.victim} killed at {kill.where}"
