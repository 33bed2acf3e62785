"""The shape of each named workload, and that it survives YAML."""

from __future__ import annotations

import pytest

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow
from kvlab.workloads import NAMES, build, parameters_of, told

PAPER = " ".join(f"Sentence {number} says that caches are thrown away." for number in range(40))


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_back_from_yaml_as_it_was(name: str) -> None:
    made = build(name, PAPER)
    again = Workflow.from_yaml(made.to_yaml())
    assert (again.name, dict(again.contexts), dict(again.agents)) == (made.name, dict(made.contexts), dict(made.agents))
    assert list(again.agents) == list(made.agents)


@pytest.mark.parametrize("name", NAMES)
def test_its_parameters_are_known_and_others_refused(name: str) -> None:
    known = parameters_of(name)
    assert known["max_new_tokens"] > 0
    made = build(name, PAPER, max_new_tokens=3)
    assert {agent.generation.max_new_tokens for agent in made.agents.values() if agent.generation} == {3}
    with pytest.raises(InvalidInput, match="no parameter 'colour'") as raised:
        build(name, PAPER, colour=1)
    assert "max_new_tokens" in raised.value.hint
    assert told(name).endswith(".")


def continued(wf: Workflow) -> dict[str, str | None]:
    return {name: getattr(agent, "continues", None) for name, agent in wf.agents.items()}


def read_by(wf: Workflow, name: str) -> list[str]:
    return [part.agent for part in getattr(wf.agents[name], "parts", ()) if hasattr(part, "agent")]


def test_a_chain_is_one_conversation() -> None:
    wf = build("chain", PAPER, agents=3)
    assert continued(wf) == {"agent-1": None, "agent-2": "agent-1", "agent-3": "agent-2"}


def test_a_fan_out_forks_one_state_and_is_read_by_one() -> None:
    wf = build("fan-out", PAPER, branches=3)
    assert continued(wf) == {"reader": None, **{f"branch-{n}": "reader" for n in (1, 2, 3)}, "judge": "reader"}
    assert read_by(wf, "judge") == ["branch-1", "branch-2", "branch-3"]


def test_a_debate_is_two_conversations_that_read_each_other() -> None:
    wf = build("debate", PAPER, rounds=3)
    assert continued(wf)["for-3"] == "for-2"
    assert (read_by(wf, "for-3"), read_by(wf, "against-3")) == (["against-2"], ["for-2"])
    assert read_by(wf, "judge") == ["for-3", "against-3"]


def test_children_of_a_tree_go_on_from_their_parent() -> None:
    wf = build("tree", PAPER, depth=2, width=3)
    assert continued(wf)["thought.3.2"] == "thought.3"
    assert len(read_by(wf, "choice")) == 9


def test_a_map_covers_the_whole_document() -> None:
    wf = build("map-reduce", PAPER, parts=3)
    pieces = [context.text for name, context in wf.contexts.items() if name.startswith("part-")]
    assert " ".join(pieces) == PAPER
    assert read_by(wf, "reduce") == ["map-1", "map-2", "map-3"]


def test_a_reflection_ends_at_the_critics_word() -> None:
    wf = build("reflection", PAPER, rounds=2, stop="Enough.")
    assert continued(wf) == {"draft": None, "critique-1": None, "revision-1": "draft", "critique-2": "critique-1",
                             "revision-2": "revision-1", "headline": "revision-2"}  # fmt: skip
    stops = {name: getattr(agent, "unless", None) for name, agent in wf.agents.items()}
    assert {name: (stop.agent, stop.text) for name, stop in stops.items() if stop} == {
        "revision-1": ("critique-1", "Enough."),
        "critique-2": ("critique-1", "Enough."),
        "revision-2": ("critique-2", "Enough."),
    }
    assert any("answer only: Enough." in getattr(part, "text", "") for part in wf.agents["critique-1"].parts)


def test_each_step_of_a_plan_waits_for_its_tool() -> None:
    wf = build("plan-execute", PAPER, steps=2, pause_ms=70)
    assert continued(wf)["step-2"] == "step-1"
    assert (read_by(wf, "look-up-2"), read_by(wf, "step-2")) == (["step-1"], ["look-up-2"])
    assert wf.agents["look-up-1"].pause_seconds == 0.07


def test_a_second_opinion_is_another_models() -> None:
    wf = build("second-opinion", PAPER, rounds=2, model="other")
    assert continued(wf) == {"draft": None, "opinion-1": "draft", "revision-1": "opinion-1", "opinion-2": "revision-1",
                             "revision-2": "opinion-2"}  # fmt: skip
    assert {name for name, agent in wf.agents.items() if agent.generation.model} == {"opinion-1", "opinion-2"}


def test_questions_share_the_documents() -> None:
    wf = build("rag", PAPER, questions=2)
    assert continued(wf) == {"answer-1": None, "check-1": "answer-1", "answer-2": None, "check-2": "answer-2"}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("chain", {"agents": 0}), ("fan-out", {"branches": 99}), ("tree", {"depth": 7}), ("map-reduce", {"parts": 2.5}),
     ("debate", {"rounds": True}), ("rag", {"questions": -1}), ("reflection", {"stop": " "}), ("reflection", {"rounds": 9}),
     ("plan-execute", {"pause_ms": -1}), ("second-opinion", {"rounds": "two"})],
)  # fmt: skip
def test_a_value_out_of_range_is_refused(name: str, parameters: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        build(name, PAPER, **parameters)


def test_a_document_too_short_to_share_out_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no 4 parts"):
        build("map-reduce", "three words only")
