from __future__ import annotations

import pytest

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow


@pytest.fixture
def wf():
    return Workflow("w")


@pytest.fixture
def branches(wf):
    return [wf.agent("a", "x"), wf.agent("b", "y")]


def test_a_prefix_merge_generates_nothing(wf, branches):
    wf.merge("m", branches)
    definition = wf.agents["m"]
    assert (definition.branches, definition.how, definition.generation) == (("a", "b"), "prefix", None)


@pytest.mark.parametrize(
    "given", [{"max_new_tokens": 5}, {"temperature": 0.5}, {"seed": 0}, {"instruction": "Sum up."}]
)
def test_a_prefix_merge_takes_no_settings_of_generation(wf, branches, given):
    with pytest.raises(InvalidInput, match=f"merge 'm' with how=\"prefix\" generates nothing: {next(iter(given))}="):
        wf.merge("m", branches, **given)


def test_a_summary_has_the_settings_of_an_agent(wf, branches):
    wf.merge("m", branches, how="summary", instruction="Sum up.", max_new_tokens=5, temperature=0.5, seed=3)
    definition = wf.agents["m"]
    assert definition.instruction == "Sum up."
    generation = definition.generation
    assert (generation.max_new_tokens, generation.temperature, generation.seed) == (5, 0.5, 3)
    wf.merge("m", branches, how="summary")
    assert wf.agents["m"].generation.max_new_tokens == 64
    assert wf.agents["m"].instruction


@pytest.mark.parametrize("given", [{"max_new_tokens": 0}, {"temperature": -1}, {"seed": -1}, {"instruction": " "}])
def test_settings_of_a_summary_are_checked(wf, branches, given):
    with pytest.raises(InvalidInput, match=f"{next(iter(given))}= of merge 'm'"):
        wf.merge("m", branches, how="summary", **given)


@pytest.mark.parametrize("how", ["mean", None, ""])
def test_another_how_is_refused(wf, branches, how):
    with pytest.raises(InvalidInput, match='must be "prefix" or "summary"'):
        wf.merge("m", branches, how=how)


def test_two_different_agents_are_needed(wf, branches):
    for few in ([], branches[:1], [branches[0], branches[0]]):
        with pytest.raises(InvalidInput, match="at least two different agents"):
            wf.merge("m", few)


def test_a_merge_takes_a_list_of_agents(wf, branches):
    for wrong in (branches[0], "ab", {"a": 1}):
        with pytest.raises(InvalidInput, match="merge 'm' takes a list of agents"):
            wf.merge("m", wrong)
    with pytest.raises(InvalidInput, match="branch 2 of merge 'm' must be an agent"):
        wf.merge("m", [branches[0], "b"])


def test_a_merge_cannot_merge_itself(wf, branches):
    with pytest.raises(InvalidInput, match="merge 'a' refers to itself"):
        wf.merge("a", branches)


def test_a_merge_is_read_and_continued_like_an_agent(wf, branches):
    merged = wf.merge("m", branches, how="summary")
    wf.agent("next", [merged, "x"], continues=merged)
    assert wf.agents["next"].continues == "m"
