from __future__ import annotations

import pytest

from kvlab.errors import InvalidInput
from kvlab.workflow.definitions import ContextPart
from kvlab.workloads import NAMES, build
from kvlab.workloads.review import review

PAPER = "A paper about caches."


@pytest.mark.parametrize("reviewers", [1, 3, 10])
def test_reviewers_branch_off_the_planner_and_the_editor_reads_them_all(reviewers):
    wf = review(PAPER, reviewers=reviewers, max_new_tokens=7)
    names = [f"reviewer-{i + 1}" for i in range(reviewers)]
    assert list(wf.agents) == ["planner", *names, "editor"]
    assert all(wf.agents[name].continues == "planner" for name in names)
    read = [part.agent for part in wf.agents["editor"].parts if hasattr(part, "agent")]
    assert read == names
    assert wf.agents["planner"].parts[0] == wf.agents["editor"].parts[0] == ContextPart("paper")
    assert {definition.generation.max_new_tokens for definition in wf.agents.values()} == {7}
    assert len({wf.agents[name].parts for name in names}) == reviewers


@pytest.mark.parametrize("reviewers", [0, 11])
def test_a_number_of_reviewers_out_of_range_is_refused(reviewers):
    with pytest.raises(InvalidInput, match="reviewers="):
        review(PAPER, reviewers=reviewers)


@pytest.mark.parametrize("name", NAMES)
def test_every_named_workload_is_built_over_the_given_document(name):
    wf = build(name, PAPER)
    assert wf.name == name
    assert PAPER in " ".join(context.text for context in wf.contexts.values())


def test_without_a_document_it_is_the_sample_text():
    from kvlab.sample import sample_text

    assert review().contexts["paper"].text == sample_text()


def test_an_unknown_workload_is_refused():
    with pytest.raises(InvalidInput, match="no workload 'reviw'") as raised:
        build("reviw")
    assert "review" in raised.value.hint
