"""Agents of one run in different namespaces, on real workers: equal text is computed in each, and the record says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kvlab

PAPER = "The planner names three weaknesses; the reviewers argue them; the editor writes the verdict. " * 3
QUESTION = "Name one weakness."


def equal_texts(*namespaces: str | None) -> kvlab.Workflow:
    wf = kvlab.Workflow("equal-texts")
    paper = wf.context("paper", PAPER)
    for number, namespace in enumerate(namespaces):
        wf.agent(f"agent-{number}", [paper, QUESTION], max_new_tokens=4, namespace=namespace)
    return wf


def prefilled(run: Any) -> list[int]:
    """Tokens of each prompt that nobody had computed before, as the workers counted them."""
    return [run[name].turn["n_prefilled"] for name in run.graph.by_id if name.startswith("agent")]


def test_equal_text_in_two_namespaces_gives_no_reuse(lab: Any) -> None:
    together = lab.run(equal_texts("a", "a"), min_shared_tokens=8).wait()
    apart = lab.run(equal_texts("a", "b"), min_shared_tokens=8).wait()
    whole = apart["agent-0"].turn["prompt_tokens"]
    assert prefilled(apart) == [whole, whole]
    assert [apart[f"agent-{n}"].turn["n_reused"] for n in (0, 1)] == [0, 0]
    assert sum(prefilled(together)) < whole
    one, two = (apart[f"agent-{n}"].state for n in (0, 1))
    assert (one.token_ids, one.record.namespace) != (two.token_ids, two.record.namespace)
    assert one.token_ids == two.token_ids
    assert one.digest != two.digest
    recipes = [{segment.recipe for segment in state.record.segments} for state in (one, two)]
    assert not recipes[0] & recipes[1]
    assert apart["agent-0"].token_ids == together["agent-0"].token_ids


def test_an_edge_between_namespaces_is_prefilled_again_and_says_so(lab: Any, cold: Any) -> None:
    def conversation(namespace: str | None) -> kvlab.Workflow:
        wf = kvlab.Workflow("conversation")
        plan = wf.agent("plan", [PAPER, "Plan."], max_new_tokens=6, namespace=namespace)
        check = wf.agent("check", "Check it.", continues=plan, max_new_tokens=6)
        wf.agent("mend", "Mend it.", continues=check, max_new_tokens=6, namespace=namespace)
        return wf

    apart = lab.run(conversation("mine")).wait()
    plain = lab.run(conversation(None)).wait()
    text = lab.run(conversation("mine"), flow="text").wait()
    for name in ("plan", "check", "mend"):
        assert apart[name].token_ids == plain[name].token_ids == text[name].token_ids
        said = cold("", [*apart[name].state.token_ids, apart[name].token_ids[-1]])
        assert said[apart[name].turn["prompt_tokens"] - 1 : -1] == list(apart[name].token_ids)
    assert apart["check"].turn["n_reused"] == 0
    assert apart["mend"].turn["n_reused"] == apart["plan"].state.n_tokens
    assert plain["mend"].turn["n_reused"] == plain["check"].state.n_tokens
    saved = kvlab.open_run(apart.path)
    edges = {row["edge"]: row for row in saved.tables["edges"].to_pylist()}
    for name in ("plan→check", "check→mend"):
        assert (edges[name]["chosen"], edges[name]["actual_how"]) == ("recompute", "recompute")
        assert "namespace 'mine'" in edges[name]["reason"]
    told = [json.loads(event["detail"]) for event in saved.events.to_pylist() if event["kind"] == "decision"]
    assert {one["target"]: one["fields"] for one in told if "fields" in one} == {
        "check": ["namespace"],
        "mend": ["namespace"],
    }
    nodes = {node["id"]: node for node in saved.world.run["graph"]["nodes"]}
    assert [nodes[name]["namespace"] for name in ("plan", "check", "mend")] == ["mine", None, "mine"]


@pytest.mark.parametrize("namespace", ["a/b", "a@b", "", 7])
def test_what_is_no_namespace_is_refused(namespace: Any) -> None:
    with pytest.raises(kvlab.errors.InvalidInput, match="namespace= of agent 'agent-0'"):
        equal_texts(namespace)
