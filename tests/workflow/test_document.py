"""Workflows as YAML: whole, checked, and what cannot be meant is named with its place."""

from __future__ import annotations

import pytest

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow


def everything() -> Workflow:
    wf = Workflow("all of it")
    paper = wf.context("paper", "Line one.\n\n  indented: {yes}\nlast # not a comment\n")
    short = wf.context("no", "yes")
    one = wf.agent("one", [paper, "Weigh: it"], role="You weigh.", temperature=0.7, seed=9, max_new_tokens=5)
    two = wf.agent("two", [short, one, "'quoted' \"text\" ⇄"], continues=one)
    wf.agent("three", "null", continues=one, model="other", namespace="apart")
    wf.merge("both", [two, wf["three"]], how="summary", instruction="Sum up.", max_new_tokens=7, namespace="3")
    wf.merge("longest", [one, two])
    words = wf.tool("words", [paper, two, "no"], call="count-words", pause_seconds=0.25, max_tokens=9)
    wf.agent("four", [words, "On."], continues=two, unless=(one, "yes: no"))
    return wf


def test_everything_comes_back() -> None:
    made = everything()
    again = Workflow.from_yaml(made.to_yaml())
    assert again.name == made.name
    assert dict(again.contexts) == dict(made.contexts)
    assert dict(again.agents) == dict(made.agents)
    assert again.to_yaml() == made.to_yaml()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("a: [", "not YAML"),
        ("a: 2024-99-99", "not YAML"),
        ("a: " + "[" * 100_000, "not YAML"),
        ("name: x", "agents:"),
        ("name: x\nagents: []", "agents:"),
        ("name: x\nagent: []", "unknown key 'agent'"),
        ("name: x\nname: y\nagents: []", "there twice"),
        ("name: 3\nagents: [{name: a, prompt: b}]", "must be a str"),
        ("name: x\nagents: [{name: a, prompt: b, colour: red}]", "unknown key 'colour'"),
        ("name: x\nagents: [{name: a}]", "must be text"),
        ("name: x\nagents: [{name: a, prompt: [{context: c}]}]", "context 'c', which is not defined"),
        ("name: x\nagents: [{name: a, prompt: [{agent: b}]}]", "agent 'b', which is not defined"),
        ("name: x\nagents: [{name: a, prompt: [{agent: b, context: c}]}]", "has the keys"),
        ("name: x\nagents: [{name: a, prompt: [{}]}]", "has the keys"),
        ("name: x\nagents: [{name: a, prompt: b, continues: c}]", "agent 'c', which is not defined"),
        ("name: x\nagents: [{name: a, prompt: b, continues: [c]}]", "which is not defined"),
        ("name: x\nagents: [{name: a, merge: b}]", "list of agents"),
        ("name: x\nagents: [{name: a, prompt: b, seed: 1.5}]", "seed="),
        ("name: x\nagents: [{name: a, tool: explode, given: b}]", "call= of tool 'a' is 'explode'"),
        ("name: x\nagents: [{name: a, tool: wait, given: b, prompt: c}]", "unknown key 'prompt'"),
        ("name: x\nagents: [{name: a, tool: wait, given: b, pause_seconds: -1}]", "pause_seconds="),
        ("name: x\nagents: [{name: a, tool: wait}]", "must be text"),
        ("name: x\nagents: [{name: a, prompt: b}, {name: c, prompt: d, continues: a, unless: a}]", "unless: of"),
        (
            "name: x\nagents: [{name: a, prompt: b}, {name: c, prompt: d, continues: a, unless: {agent: z, says: y}}]",
            "agent 'z', which is not defined",
        ),
        (
            "name: x\nagents: [{name: a, prompt: b}, {name: c, prompt: d, continues: a, unless: {agent: a, says: yes}}]",
            "the text in unless= of agent 'c' must be text",
        ),
        ("name: x\ncontexts: [a]\nagents: [{name: a, prompt: b}]", "contexts:"),
        ("name: x\ncontexts: {a: 3}\nagents: [{name: a, prompt: b}]", "must be text"),
        ("name: !!python/object:os.system x\nagents: []", "not YAML"),
    ],
)
def test_what_cannot_be_meant_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workflow.from_yaml(text)
    assert said in raised.value.message
    assert raised.value.hint or "must be" in raised.value.message


def test_a_function_of_the_users_own_is_not_written() -> None:
    wf = Workflow("own")
    wf.tool("mine", "text", call=lambda text: text)
    with pytest.raises(InvalidInput, match="tool 'mine' calls a function of yours") as caught:
        wf.to_yaml()
    assert "count-words" in caught.value.hint
