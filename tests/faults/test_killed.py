"""A worker that is killed costs time, never the answer, whenever it happens; and the edge says what it cost.

Kills in the middle of a prefill, of a decode, of a transfer and of a hybrid are in ``tests/runtime/test_faults.py``.
"""

from __future__ import annotations

from typing import Any

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
    used = faults.used_bytes(frames_lab)
    state = frames_lab.materialize(TEXT + "kept", worker="worker-0").transfer("worker-1", keep=True)
    assert faults.used_bytes(frames_lab) - used == 2 * state.nbytes
    faults.kill_and_see(frames_lab, "worker-0")
    answer = state.resume(" so", max_new_tokens=4)
    cold.require_right(frames_lab, answer)
    assert (answer.how, answer.n_reused) == ("in place", state.n_tokens)
    faults.wait_for(lambda: faults.used_bytes(frames_lab) - used == answer.state.nbytes, 15)
    faults.wait_for_all(frames_lab)


def test_after_a_transfer_that_left_no_other_copy_it_is_made_again(frames_lab: Any, cold: Any, faults: Any) -> None:
    state = frames_lab.materialize(TEXT + "moved", worker="worker-0").transfer("worker-1")
    assert state.workers == ("worker-1",)
    faults.kill_and_see(frames_lab, "worker-1")
    answer = state.resume(" so", max_new_tokens=4)
    cold.require_right(frames_lab, answer)
    assert (answer.how, answer.n_reused) == ("recompute", 0)
    faults.wait_for_all(frames_lab)


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
