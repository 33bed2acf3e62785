from __future__ import annotations

import logging

import pytest

from kvlab.errors import InvalidInput
from kvlab.workflow import Agent, Context, Workflow
from kvlab.workflow.definitions import AnswerPart, ContextPart, Generation, TextPart


@pytest.fixture
def wf():
    return Workflow("w")


@pytest.fixture
def paper(wf):
    return wf.context("paper", "the paper")


@pytest.fixture
def plan(wf, paper):
    return wf.agent("plan", [paper, "Plan."])


def refused(match):
    return pytest.raises(InvalidInput, match=match)


def test_a_prompt_is_text_a_context_an_agent_or_a_list_of_these(wf, paper, plan):
    wf.agent("a", "text")
    wf.agent("b", paper)
    wf.agent("c", plan)
    wf.agent("d", (paper, plan, "text"))
    parts = [wf.agents[name].parts for name in "abcd"]
    text, context, answer = TextPart("text"), ContextPart("paper"), AnswerPart("plan")
    assert parts == [(text,), (context,), (answer,), (context, answer, text)]


def test_the_defaults_are_those_of_the_design(wf):
    wf.agent("a", "x")
    definition = wf.agents["a"]
    assert (definition.continues, definition.role) == (None, None)
    assert definition.generation == Generation(max_new_tokens=64, temperature=0.0, seed=0, model=None)
    assert isinstance(definition.generation.temperature, float)


def test_continuing_is_by_name(wf, plan):
    wf.agent("next", "x", continues=plan)
    assert wf.agents["next"].continues == "plan"


@pytest.mark.parametrize(
    ("keyword", "nearest"),
    [("continue_", "continues"), ("max_tokens", "max_new_tokens"), ("temprature", "temperature"), ("rolle", "role")],
)
def test_a_misspelt_keyword_names_the_nearest_valid_one(wf, keyword, nearest):
    with refused(f"agent 'a' has no keyword {keyword}=") as raised:
        wf.agent("a", "x", **{keyword: 1})
    assert raised.value.hint == f"did you mean {nearest}=?"
    assert "a" not in wf.agents


def test_a_keyword_like_no_other_lists_the_valid_ones(wf):
    with refused("no keyword zzz=") as raised:
        wf.agent("a", "x", zzz=1)
    assert "max_new_tokens=" in raised.value.hint


def test_misspelt_keywords_of_contexts_and_merges_are_refused_too(wf, plan):
    with refused("context 'c' has no keyword txet="):
        wf.context("c", "x", txet="y")
    with refused("merge 'm' has no keyword hwo="):
        wf.merge("m", [plan, plan], hwo="summary")


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_empty_texts_are_refused_where_they_stand(wf, paper, text):
    with refused("the text of context 'c' is empty"):
        wf.context("c", text)
    with refused("part 1 of the prompt of agent 'a' is empty"):
        wf.agent("a", text)
    with refused("part 2 of the prompt of agent 'a' is empty"):
        wf.agent("a", [paper, text])
    with refused("role= of agent 'a' is empty"):
        wf.agent("a", "x", role=text)


def test_an_empty_list_is_no_prompt(wf):
    with refused("the prompt of agent 'a' is empty"):
        wf.agent("a", [])


@pytest.mark.parametrize("prompt", [None, 7, b"bytes", {"a": 1}, {"a"}, iter(["x"])])
def test_other_types_are_no_prompt(wf, prompt):
    with refused(f"the prompt of agent 'a' must be text.*not {type(prompt).__name__}"):
        wf.agent("a", prompt)


@pytest.mark.parametrize("part", [None, 7, b"bytes"])
def test_other_types_are_no_part(wf, part):
    with refused("part 2 of the prompt of agent 'a' must be text"):
        wf.agent("a", ["x", part])


def test_a_forgotten_star_is_recognised(wf, plan):
    with refused("part 1 of the prompt of agent 'a' is a list") as raised:
        wf.agent("a", [[plan, plan], "x"])
    assert "star" in raised.value.hint


def test_text_without_a_utf8_form_is_refused_with_its_place(wf):
    with refused("lone surrogate at character 2"):
        wf.context("c", "ab\ud800")


@pytest.mark.parametrize("name", ["", " a", "a ", "a:b", "a/0", "a#2", "a\nb", None, 3])
def test_names_that_would_confuse_are_refused(wf, name):
    with pytest.raises(InvalidInput):
        wf.agent(name, "x")
    with pytest.raises(InvalidInput):
        wf.context(name, "x")
    with pytest.raises(InvalidInput):
        Workflow(name)


@pytest.mark.parametrize("value", [0, -1, 1.0, "8", True, None, 2**63])
def test_max_new_tokens_is_a_positive_int(wf, value):
    with refused("max_new_tokens= of agent 'a' must be"):
        wf.agent("a", "x", max_new_tokens=value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "1", True, None])
def test_temperature_is_a_finite_number_of_at_least_zero(wf, value):
    with refused("temperature= of agent 'a' must be"):
        wf.agent("a", "x", temperature=value)


@pytest.mark.parametrize("value", [-1, 0.5, "1", False, 2**63])
def test_seed_is_an_int_of_at_least_zero(wf, value):
    with refused("seed= of agent 'a' must be"):
        wf.agent("a", "x", seed=value)


def test_equal_temperatures_have_one_spelling(wf):
    for name, value in [("a", 0), ("b", 0.0), ("c", -0.0)]:
        wf.agent(name, "x", temperature=value)
    assert {repr(wf.agents[name].generation.temperature) for name in "abc"} == {"0.0"}


def test_numbers_of_numpy_are_numbers(wf):
    numpy = pytest.importorskip("numpy")
    wf.agent("a", "x", max_new_tokens=numpy.int64(5), temperature=numpy.float32(0.5), seed=numpy.int32(3))
    generation = wf.agents["a"].generation
    assert [type(value) for value in (generation.max_new_tokens, generation.temperature, generation.seed)] == [
        int,
        float,
        int,
    ]


@pytest.mark.parametrize("value", ["plan", 3])
def test_continues_takes_an_agent_only(wf, paper, value):
    with refused("continues= of agent 'a' must be an agent, not"):
        wf.agent("a", "x", continues=value)
    with refused("must be an agent, not a context"):
        wf.agent("a", "x", continues=paper)


def test_a_continuing_agent_has_no_role_of_its_own(wf, plan):
    with refused("agent 'a' continues 'plan'.*role= cannot be given"):
        wf.agent("a", "x", continues=plan, role="Be brief.")


def test_an_agent_cannot_refer_to_itself(wf, plan):
    with refused("agent 'plan' refers to itself"):
        wf.agent("plan", [plan, "x"])
    with refused("agent 'plan' refers to itself"):
        wf.agent("plan", "x", continues=plan)


def test_handles_of_another_workflow_are_refused(wf, paper, plan):
    other = Workflow("w")
    for use in (
        lambda: other.agent("a", [paper, "x"]),
        lambda: other.agent("a", [plan, "x"]),
        lambda: other.agent("a", "x", continues=plan),
        lambda: other.merge("m", [plan, wf.agent("b", "y")]),
    ):
        with refused("belongs to another workflow"):
            use()
    assert dict(other.agents) == {}


def test_a_redefinition_replaces_keeps_its_place_and_leaves_a_notice(wf, paper, plan, caplog):
    reader = wf.agent("reader", [paper, plan])
    with caplog.at_level(logging.INFO, logger="kvlab"):
        again = wf.context("paper", "another paper")
        plan_again = wf.agent("plan", "Plan anew.")
    assert wf.contexts["paper"].text == "another paper"
    assert wf.agents["plan"].parts == (TextPart("Plan anew."),)
    assert list(wf.agents) == ["plan", "reader"]
    assert (again, plan_again) == (paper, plan)
    assert wf.agents[reader.name].parts == (ContextPart("paper"), AnswerPart("plan"))
    assert wf.notices == (
        "workflow 'w': context 'paper' was replaced by a new context of that name",
        "workflow 'w': agent 'plan' was replaced by a new agent of that name",
    )
    assert [record.message for record in caplog.records] == list(wf.notices)


def test_a_refused_redefinition_changes_nothing(wf, plan):
    before = wf.agents[plan.name]
    with refused("max_new_tokens"):
        wf.agent("plan", "x", max_new_tokens=0)
    assert wf.agents["plan"] == before
    assert wf.notices == ()


def test_a_name_means_one_thing(wf, paper):
    wf.agent("paper", "x")
    assert "paper" not in wf.contexts
    assert isinstance(wf["paper"], Agent)
    wf.context("paper", "x")
    assert "paper" not in wf.agents
    assert wf["paper"] == paper
    assert len(wf.notices) == 2


def test_definitions_cannot_be_changed_behind_the_workflows_back(wf, plan):
    with pytest.raises(TypeError):
        wf.agents["plan"] = None
    with pytest.raises(AttributeError):
        wf.agents["plan"].parts = ()
    assert plan.name in wf.agents


def test_names_give_handles_back(wf, paper, plan):
    assert wf["paper"] == paper
    assert wf["plan"] == plan
    assert isinstance(wf["paper"], Context)
    with refused("workflow 'w' has nothing named 'zzz'") as raised:
        wf["zzz"]
    assert "paper, plan" in raised.value.hint


def test_representations_are_short_and_safe(wf, plan):
    wf.context("big", "x" * 100_000)
    wf.agent("<b>", "y", continues=plan)
    wf.merge("m", [plan, wf["<b>"]])
    assert repr(wf) == "<kvlab workflow 'w': 2 contexts, 3 agents>"
    html = wf._repr_html_()
    assert len(html) < 1000
    assert "&lt;b&gt;" in html
    assert "<i><b></i>" not in html
    assert "100,000 characters" in html
