"""A person holds a run: steps it, stops it before an agent, overrides what is pending; thinking is not measured."""

from __future__ import annotations

import _thread
import itertools
import threading
import time
from typing import Any

import pytest

import kvlab
from kvlab.errors import Cancelled, InvalidInput
from kvlab.store.log import read_log
from kvlab.store.saved import EVENTS

TEXT = "What was prefilled once need not be prefilled again. " * 10
SHARE = 8
THINKING = 1.5


def two_readers() -> kvlab.Workflow:
    wf = kvlab.Workflow("stepped")
    paper = wf.context("paper", TEXT)
    first = wf.agent("first", [paper, "Begin."], max_new_tokens=4)
    wf.agent("second", [paper, first, "Go on."], max_new_tokens=4)
    return wf


def pending(run: Any) -> Any:
    """What waits at the gate, as soon as something does."""
    deadline = time.monotonic() + 20
    while run.pending is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert run.pending is not None
    return run.pending


def test_the_pending_action_tells_how_it_would_be_decided(frames_lab: Any) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True)
    fresh = pending(run)
    assert (fresh.op, fresh.edge, fresh.decision) == ("materialize", "", None)
    run.step()
    deadline = time.monotonic() + 20
    while pending(run).action == fresh.action and time.monotonic() < deadline:
        time.sleep(0.01)
    waits = pending(run)
    assert waits.agents == ("first",)
    assert waits.edge.endswith("→first")
    assert waits.decision.chosen in waits.decision.alternatives
    with pytest.raises(InvalidInput, match="paused"):
        run.wait()
    run.play().wait()
    assert run.pending is None


def test_an_override_of_the_pending_decision_is_carried_out(frames_lab: Any) -> None:
    plain = frames_lab.run(two_readers(), min_shared_tokens=SHARE).wait()
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True).play(until="second")
    waits = pending(run)
    assert waits.agents == ("second",)
    where = next(
        a.worker
        for a in waits.decision.alternatives
        if a.how == "recompute" and a.worker != waits.decision.chosen.worker
    )
    run.choose("recompute", where)
    assert (pending(run).decision.chosen.how, pending(run).decision.chosen.worker) == ("recompute", where)
    run.play().wait()
    edge = next(e for e in run.tables["edges"].to_pylist() if e["target"] == "second")
    assert (edge["chosen"], edge["actual_how"], edge["worker"], edge["policy"]) == (
        "recompute",
        "recompute",
        where,
        "forced",
    )
    assert run["second"].token_ids == plain["second"].token_ids
    with pytest.raises(InvalidInput, match="decided already"):
        run.choose("transfer", edge=edge["edge"])


def test_siblings_that_part_are_each_let_through_and_chosen_for(frames_lab: Any) -> None:
    """One of them goes another road, so they are decided apart: who waits longer can still be chosen for."""
    wf = kvlab.Workflow("siblings")
    first = wf.agent("first", TEXT, max_new_tokens=3)
    for name in ("left", "right"):
        wf.agent(name, f"Go {name}.", continues=first, max_new_tokens=3)
    plain = frames_lab.run(wf).wait()
    run = frames_lab.run(wf, paused=True).play(until="left")
    assert pending(run).agents == ("left", "right")
    run.choose("recompute", edge="first→left")
    run.step()
    deadline = time.monotonic() + 20
    while pending(run).agents != ("right",) and time.monotonic() < deadline:
        time.sleep(0.01)
    waits = pending(run)
    assert waits.agents == ("right",)
    where = next(name for name in frames_lab.workers if name != waits.decision.chosen.worker)
    run.choose("recompute", where)
    run.play().wait()
    edges = {edge["target"]: edge for edge in run.tables["edges"].to_pylist()}
    assert edges["left"]["chosen"] == "recompute"
    assert (edges["right"]["chosen"], edges["right"]["worker"], edges["right"]["policy"]) == (
        "recompute",
        where,
        "forced",
    )
    for name in ("left", "right"):
        assert run[name].token_ids == plain[name].token_ids
    load = frames_lab.core.load
    assert all(load.queue_seconds(name) == 0 for name in frames_lab.workers)


def test_a_prefix_merge_is_an_action_and_a_breakpoint(frames_lab: Any) -> None:
    wf = kvlab.Workflow("merging")
    first = wf.agent("first", TEXT, max_new_tokens=3)
    second = wf.agent("second", "More.", continues=first, max_new_tokens=3)
    wf.agent("last", "Done.", continues=wf.merge("joined", [first, second], how="prefix"), max_new_tokens=3)
    run = frames_lab.run(wf, paused=True).play(until="merge")
    waits = pending(run)
    assert (waits.op, waits.agents, waits.decision) == ("merge", ("joined",), None)
    run.step()
    deadline = time.monotonic() + 20
    while pending(run).agents != ("last",) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pending(run).agents == ("last",)
    run.play().wait()


def test_thinking_is_in_no_metric_and_the_run_is_marked(frames_lab: Any) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True)
    for _ in range(3):
        pending(run)
        time.sleep(THINKING)
        run.step()
        time.sleep(0.2)
    run.play().wait()
    held = run.world.run["held_seconds"]
    assert held >= 3 * THINKING
    assert run.world.run["stepped"]
    for turn in run.tables["turns"].to_pylist():
        assert turn["ttft_seconds"] + turn["queue_seconds"] + turn["overhead_seconds"] < THINKING
    for edge in run.tables["edges"].to_pylist():
        assert edge["actual_seconds"] < THINKING
    took = (run.world.run["finished_ns"] - run.world.run["started_ns"]) / 1e9
    assert run.world.wall_seconds == pytest.approx(took - held)
    free = frames_lab.run(two_readers(), min_shared_tokens=SHARE).wait()
    assert not free.world.run["stepped"]
    assert free.world.run["held_seconds"] == 0


def test_played_at_a_speed_actions_come_one_by_one(frames_lab: Any) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True).play(speed=2).wait()
    planned = [row["planned_ns"] for row in run.tables["operators"].to_pylist()]
    assert all(after - before >= 0.45e9 for before, after in itertools.pairwise(planned))


@pytest.mark.parametrize(
    ("until", "agent"),
    [
        ("second", "second"),
        ("resume", "first"),
        ("first→", "third"),
        ("first→third", "third"),
        (["resume", "second"], "first"),
    ],
)
def test_a_breakpoint_is_an_agent_an_operator_a_state_or_an_edge(frames_lab: Any, until: Any, agent: str) -> None:
    wf = kvlab.Workflow("stops")
    paper = wf.context("paper", TEXT)
    first = wf.agent("first", [paper, "Begin."], max_new_tokens=4)
    wf.agent("second", [paper, first, "Go on."], max_new_tokens=4)
    wf.agent("third", "And on.", continues=first, max_new_tokens=4)
    run = frames_lab.run(wf, min_shared_tokens=SHARE, paused=True)
    try:
        assert pending(run).op == "materialize"
        run.play(until=until)
        deadline = time.monotonic() + 20
        while (run.status == "running" or run.pending is None) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (run.status, run.pending.agents) == ("paused", (agent,))
    finally:
        run.cancel()


def test_ctrl_c_in_wait_leaves_the_run_and_cancel_ends_it(frames_lab: Any) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True).play(speed=0.2)
    deadline = time.monotonic() + 20
    while not run.states and time.monotonic() < deadline:
        time.sleep(0.01)
    threading.Timer(0.5, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert (run.over, run.status) == (False, "running")
    assert run.cancel() is run
    with pytest.raises(Cancelled):
        run.wait(20)
    assert (run.over, run.status) == (True, "cancelled")
    assert run.world.status == "cancelled"


def test_wait_on_a_paused_run_says_at_once_what_to_do(frames_lab: Any) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True)
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="paused") as caught:
        run.wait()
    assert time.monotonic() - began < 1
    assert "run.play()" in caught.value.hint
    run.cancel()
    with pytest.raises(Cancelled):
        run.wait(20)
    assert run.world.run["stepped"]


def test_a_follower_hears_every_event_once_and_a_paused_log_holds_nothing_back(frames_lab: Any) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True)
    heard: list[Any] = []
    before, undo = run.follow(heard.extend)
    pending(run)
    run.step()
    deadline = time.monotonic() + 20
    while (run.pending is None or run.pending.agents != ("first",)) and time.monotonic() < deadline:
        time.sleep(0.01)
    told = run.world.n_events
    assert before.num_rows + len(heard) >= told > before.num_rows
    while read_log(run.path / EVENTS).num_rows < told and time.monotonic() < deadline:
        time.sleep(0.05)  # by itself: nobody appends
    assert read_log(run.path / EVENTS).num_rows >= told
    run.play().wait()
    undo()
    assert before.num_rows + len(heard) == run.world.n_events == run.events.num_rows


@pytest.mark.parametrize(
    "wrong",
    [
        {"speed": 0},
        {"speed": -1.0},
        {"speed": "fast"},
        {"until": "nobody"},
        {"until": ["first", "nobody"]},
        {"until": 5},
    ],
)
def test_what_cannot_be_meant_is_refused(frames_lab: Any, wrong: dict[str, Any]) -> None:
    run = frames_lab.run(two_readers(), min_shared_tokens=SHARE, paused=True)
    try:
        with pytest.raises(InvalidInput):
            run.play(**wrong)
        with pytest.raises(InvalidInput):
            run.choose("teleport")
        for actions in (-1, 0, None, "x", float("nan"), True):
            with pytest.raises(InvalidInput, match="actions") as caught:
                run.step(actions)
            assert caught.value.hint
    finally:
        run.cancel()
