"""Tools in a run: the gap is real and recorded, the state that waits is held, and what goes wrong goes wrong by name."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

import kvlab
from kvlab.display.timeline_picture import spans
from kvlab.errors import Cancelled, InvalidInput, KVLabError, NoRoom

PAPER = "The planner names three weaknesses; the reviewers argue them; the editor writes the verdict. " * 3
PAUSE = 0.3


def plan(*tools: dict[str, Any]) -> kvlab.Workflow:
    """A planner, and after each tool a step that goes on from the state before."""
    wf = kvlab.Workflow("plan")
    last = wf.agent("step-0", [wf.context("paper", PAPER), "Plan."], max_new_tokens=5)
    for number, told in enumerate(tools, start=1):
        found = wf.tool(f"tool-{number}", last, **told)
        last = wf.agent(f"step-{number}", [found, "Go on."], continues=last, max_new_tokens=5)
    return wf


def test_a_gap_is_as_long_as_it_is_and_the_record_shows_it(lab: Any) -> None:
    given: list[tuple[str, ...]] = []

    def shorten(*texts: str) -> str:
        given.append(texts)
        return "Found: three weaknesses."

    wf = plan({"call": shorten, "pause_seconds": PAUSE}, {"call": "count-words"})
    run, text = lab.run(wf, policy="always-transfer").wait(), lab.run(wf, flow="text").wait()
    for name in ("step-0", "step-1", "step-2", "tool-1", "tool-2"):
        assert run[name].token_ids == text[name].token_ids
    assert given == [(run["step-0"].text,)] * 2
    assert run["tool-1"].text == "Found: three weaknesses."
    assert lab.core.tokenizer.decode(run["step-1"].state.record.path_ids).count("Found: three weaknesses.") == 1
    rows = {row["agent"]: row for row in kvlab.open_run(run.path).tables["operators"].to_pylist()}
    assert (rows["tool-1"]["op"], rows["tool-1"]["status"], rows["tool-1"]["worker"]) == ("tool", "done", "tools")
    assert PAUSE <= rows["tool-1"]["seconds"] < PAUSE + 5
    assert rows["step-1"]["started_ns"] - rows["step-0"]["finished_ns"] >= PAUSE * 1e9
    assert [span.agent for span in spans(run.world) if span.worker == "tools"] == ["tool-1", "tool-2"]
    assert run["step-1"].turn["n_reused"] == run["step-0"].state.n_tokens
    assert "■ tool-1" in str(run.graph)
    with pytest.raises(InvalidInput, match="is a tool"):
        run["tool-1"].state  # noqa: B018


def test_a_state_that_waits_is_held_until_its_deadline(lab: Any) -> None:
    phases: list[str] = []
    pressed: list[Any] = []

    def press(*_: str) -> str:
        budget = lab.core.catalog.budget
        for run in pressed:
            with suppress(NoRoom):
                budget.reserve("pressure", budget.limit_bytes, "a test")
            budget.release("pressure")
            phases.append(run.states[f"step-{len(phases)}"].phase)
        return "Room was wanted."

    wf = plan({"call": press}, {"call": press, "pause_seconds": PAUSE, "hold_seconds": PAUSE / 10})
    text = lab.run(wf, flow="text").wait()
    run = lab.run(wf, policy="always-transfer", paused=True)
    pressed.append(run)
    run.play().wait()
    assert phases[0] == "resident"
    assert phases[1] in ("spilled", "evicted")
    assert run["step-2"].token_ids == text["step-2"].token_ids
    assert run["step-1"].turn["n_reused"] == run["step-0"].state.n_tokens
    assert run["step-2"].turn["n_reused"] == (run["step-1"].state.n_tokens if phases[1] == "spilled" else 0)


def test_a_tool_that_fails_fails_by_name_and_the_rest_is_there(lab: Any) -> None:
    def broken(*_: str) -> str:
        raise ValueError("no such page")

    wrong: Any = len
    for told, message in (
        ({"call": broken}, "tool tool-1 failed: ValueError: no such page"),
        ({"call": wrong}, "tool tool-1 returned int, not a text"),
        ({"call": lambda _: "word " * 90, "max_tokens": 8}, r"tool tool-1 returned \d+ tokens, at most 8"),
    ):
        run = lab.run(plan(told))
        with pytest.raises(KVLabError, match=message):
            run.wait()
        assert run["step-0"].text == run["step-0"].text
        assert (run.state_of("tool-1"), run.state_of("step-1")) == ("failed", "failed")
    states = {entry.record.id for entry in lab.core.catalog.states()}
    assert all(held.owners <= states for held in lab.core.catalog._segments.values())


def test_a_cancelled_run_does_not_wait_for_a_pause(lab: Any) -> None:
    run = lab.run(plan({"call": "wait", "pause_seconds": 60}))
    assert run["step-0"].token_ids
    began = time.monotonic()
    run.cancel()
    with pytest.raises(Cancelled):
        run.wait(timeout=30)
    assert time.monotonic() - began < 4
    assert run.status == "cancelled"


def test_a_tool_waits_at_the_gate_like_any_action(lab: Any) -> None:
    run = lab.run(plan({"call": "wait"}), paused=True).play(until="tool-1")
    while run.pending is None:
        time.sleep(0.01)
    assert str(run.pending) == "next: tool of tool-1"
    assert run.state_of("step-0") == "done"
    run.play().wait()
    assert run["tool-1"].text == "Done."
