"""Every workload says the same as stateflow, as textflow and cold, reuses what it can, and its policy decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
Cold = Callable[[list[int]], list[int]]

SHARE = 8
"""Tokens: on a tiny model prefill is nearly free, so that no prefix would be worth a task of its own."""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Any]) -> Iterator[Any]:
    """One for all: two workers, states cross as bytes, so that there are roads to choose among."""
    with make_lab(same_host="frames", kv_budget="1 GiB") as made:
        yield made


@pytest.fixture(scope="module")
def cold(tiny_model_dir: str) -> Cold:
    """What unmodified transformers would say after each of the ids."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, attn_implementation="sdpa").float().eval()

    def greedy(ids: list[int]) -> list[int]:
        with torch.inference_mode():
            return [int(token) for token in model(input_ids=torch.tensor([ids])).logits[0].argmax(-1)]

    return greedy


def answers(run: Any) -> dict[str, tuple[int, ...]]:
    """What agents and tools said."""
    return {node.id: run[node.id].token_ids for node in run.graph.nodes if node.kind != "materialize"}


def chosen(run: Any) -> dict[str, str]:
    return {row["edge"]: row["chosen"] for row in run.tables["edges"].to_pylist()}


def reused(run: Any) -> int:
    return sum(turn["n_reused"] for turn in run.tables["turns"].to_pylist())


@pytest.mark.parametrize("name", NAMES)
def test_a_workload(lab: Any, cold: Cold, record_property: Callable[[str, int], None], name: str) -> None:
    wf = build(name, PAPER, max_new_tokens=5, **SMALL.get(name, {}))
    text = lab.run(wf, flow="text").wait()
    used = lab.run(wf, policy="always-transfer", min_shared_tokens=SHARE).wait()
    computed = lab.run(wf, policy="always-recompute", min_shared_tokens=SHARE).wait()
    assert answers(text) == answers(used) == answers(computed)
    for turn in used.tables["turns"].to_pylist():
        if not turn["n_generated"]:
            continue
        ids = [*used[turn["agent"]].state.token_ids, turn["token_ids"][-1]]
        assert cold(ids)[turn["prompt_tokens"] - 1 : -1] == turn["token_ids"], turn["agent"]
    record_property("tokens_reused", reused(used))
    assert reused(used) > 0 == reused(text) == reused(computed)
    roads = chosen(used), chosen(computed)
    assert roads[0].keys() == roads[1].keys()
    assert set(roads[1].values()) == {"recompute"}
    assert "recompute" not in roads[0].values()


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
