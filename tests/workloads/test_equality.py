"""Every workload says the same as stateflow, as textflow and cold, reuses what it can, and its policy decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kvlab
from kvlab.workloads import NAMES, build

PAPER = "The planner names three weaknesses; the reviewers argue them; the editor writes the verdict. " * 3
SMALL: dict[str, dict[str, int]] = {
    "review": {"reviewers": 2},
    "chain": {"agents": 3},
    "fan-out": {"branches": 3},
    "map-reduce": {"parts": 2},
    "reflection": {"rounds": 2},
    "rag": {"questions": 2},
    "plan-execute": {"steps": 2, "pause_ms": 50},
}
Cold = Callable[[str, list[int]], list[int]]

SHARE = 8
"""Tokens: on a tiny model prefill is nearly free, so that no prefix would be worth a task of its own."""


def answers(run: Any) -> dict[str, tuple[int, ...]]:
    """What agents and tools said."""
    return {node.id: run[node.id].token_ids for node in run.graph.nodes if node.kind != "materialize"}


def chosen(run: Any) -> dict[str, str]:
    return {row["edge"]: row["chosen"] for row in run.tables["edges"].to_pylist()}


def reused(run: Any) -> int:
    return sum(turn["n_reused"] for turn in run.tables["turns"].to_pylist())


@pytest.mark.parametrize("name", NAMES)
def test_a_workload(lab: Any, other: str, cold: Cold, record_property: Callable[[str, int], None], name: str) -> None:
    parameters = {**SMALL.get(name, {}), **({"model": other} if name == "second-opinion" else {})}
    wf = build(name, PAPER, max_new_tokens=5, **parameters)
    text = lab.run(wf, flow="text").wait()
    used = lab.run(wf, policy="always-transfer", min_shared_tokens=SHARE).wait()
    computed = lab.run(wf, policy="always-recompute", min_shared_tokens=SHARE).wait()
    assert answers(text) == answers(used) == answers(computed)
    for turn in used.tables["turns"].to_pylist():
        if not turn["n_generated"]:
            continue
        ids = [*used[turn["agent"]].state.token_ids, turn["token_ids"][-1]]
        said = cold(used.graph.by_id[turn["agent"]].model, ids)[turn["prompt_tokens"] - 1 : -1]
        assert said == turn["token_ids"], turn["agent"]
    record_property("tokens_reused", reused(used))
    # To compute again on a worker is to compute what that worker lacks: part of a state may lie there.
    assert reused(used) > reused(computed) >= reused(text) == 0
    roads = chosen(used), chosen(computed)
    assert roads[0].keys() == roads[1].keys()
    assert set(roads[1].values()) == {"recompute"}
    refused = {f"{edge.source}→{edge.target}" for edge in used.graph.state_edges if edge.fields}
    assert {edge for edge, road in roads[0].items() if road == "recompute"} == refused
    assert refused < set(roads[0])


def loop(stop: str, rounds: int = 3) -> kvlab.Workflow:
    """A loop whose prompts do not name ``stop``: what is said does not depend on when it ends."""
    wf = kvlab.Workflow("loop")
    paper = wf.context("paper", PAPER)
    text = wf.agent("draft", [paper, "Write."], max_new_tokens=6)
    critique = wf.agent("critique-1", [paper, "Draft:", text, "Weak?"], max_new_tokens=6)
    for number in range(1, rounds + 1):
        if number > 1:
            prompt = ["Draft:", text, "Weak?"]
            critique = wf.agent(
                f"critique-{number}", prompt, continues=critique, unless=(critique, stop), max_new_tokens=6
            )
        prompt = ["Critic:", critique, "Again."]
        text = wf.agent(f"revision-{number}", prompt, continues=text, unless=(critique, stop), max_new_tokens=6)
    sides = [wf.agent(f"side-{n}", f"Title {n}.", continues=text, max_new_tokens=6) for n in (1, 2)]
    wf.agent("end", [paper, text, *sides, "Choose."], max_new_tokens=6)
    return wf


ROUNDS = ["critique-2", "revision-2", "critique-3", "revision-3"]


def test_a_loop_ends_when_the_critic_says_so(lab: Any) -> None:
    whole = lab.run(loop("never said"), min_shared_tokens=SHARE).wait()
    assert "skipped" not in {whole.state_of(name) for name in ("revision-1", *ROUNDS)}
    stop = whole["critique-2"].text
    assert stop
    assert stop not in whole["critique-1"].text
    state = lab.run(loop(stop), min_shared_tokens=SHARE).wait()
    text = lab.run(loop(stop), flow="text").wait()
    assert answers(state) == answers(text)
    for run in (state, text):
        assert [run.state_of(name) for name in ROUNDS] == ["done", "skipped", "skipped", "skipped"]
        assert run["revision-3"].token_ids == run["revision-1"].token_ids == whole["revision-1"].token_ids
        assert run["critique-3"].text == stop
        agents = {row["agent"]: row for row in run.tables["agents"].to_pylist()}
        assert agents["revision-2"]["status"] == "skipped"
        assert agents["revision-2"]["error"] == f"critique-2 said {stop!r}"
        assert not {"revision-2", "critique-3"} & {row["agent"] for row in run.tables["turns"].to_pylist()}
        with pytest.raises(kvlab.InvalidInput, match="it was skipped, because critique-2 said"):
            run["revision-2"].turn  # noqa: B018
    assert state["revision-3"].state.id == state["revision-1"].state.id
    assert not {edge for edge in chosen(state) if edge.endswith(("→revision-2", "→critique-3"))}
    # Whoever goes on from a turn that was skipped goes on from the one it stands for: nothing of the loop is between.
    short = kvlab.Workflow("short")
    paper = short.context("paper", PAPER)
    draft = short.agent("draft", [paper, "Write."], max_new_tokens=6)
    critic = short.agent("critique-1", [paper, "Draft:", draft, "Weak?"], max_new_tokens=6)
    revision = short.agent("revision-1", ["Critic:", critic, "Again."], continues=draft, max_new_tokens=6)
    sides = [short.agent(f"side-{n}", f"Title {n}.", continues=revision, max_new_tokens=6) for n in (1, 2)]
    short.agent("end", [paper, revision, *sides, "Choose."], max_new_tokens=6)
    plain = lab.run(short, min_shared_tokens=SHARE).wait()
    for name in ("side-1", "side-2", "end"):
        assert state[name].state.token_ids == plain[name].state.token_ids


def test_a_loop_is_skipped_in_the_record_as_in_the_run(lab: Any) -> None:
    first = lab.run(loop("never said"), min_shared_tokens=SHARE).wait()["critique-1"].text
    run = lab.run(loop(first), min_shared_tokens=SHARE).wait()
    saved = kvlab.open_run(run.path)
    skipped = [event for event in saved.events.to_pylist() if event["kind"] == "action.skipped"]
    assert [event["agent"] for event in skipped] == ["revision-1", *ROUNDS]
    assert {event["state"] for event in skipped} == {run["draft"].state.id, run["critique-1"].state.id}
    assert run["revision-3"].text == run["draft"].text
    assert "skipped" in str(saved)
