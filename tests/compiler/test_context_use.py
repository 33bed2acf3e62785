from __future__ import annotations

import pytest

from kvlab.compiler import compile_workflow
from kvlab.workflow import Workflow

PAPER = "words of the paper " * 10


@pytest.fixture
def wf():
    wf = Workflow("w")
    paper = wf.context("paper", PAPER)
    for name in ("one", "two"):
        wf.agent(name, [paper, f"Question {name}."])
    return wf


def lost(graph):
    return [(e.source, e.target, e.n_tokens, e.recompute_because) for e in graph.state_edges if e.recompute_because]


def test_a_context_that_stands_first_everywhere_loses_nothing(tokenizer, wf):
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    assert graph.warnings == ()
    assert lost(graph) == []


def test_text_before_a_shared_context_is_warned_of_with_the_tokens_lost(tokenizer, wf):
    wf.agent("late", ["Read this:", wf["paper"], "Question."])
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    (warning,) = graph.warnings
    assert warning == (
        "agent 'late': the 190 tokens of context 'paper' are prefilled again, because other text comes before it; "
        "put it first"
    )
    assert lost(graph) == [("context:paper", "late", 190, "other text comes before it")]
    assert graph.by_id["late"].parent is None


def test_another_role_before_a_shared_context_is_warned_of(tokenizer, wf):
    wf.agent("pirate", [wf["paper"], "Question."], role="You are a pirate.")
    (warning,) = compile_workflow(wf, tokenizer, max_positions=4096).warnings
    assert "agent 'pirate': the 190 tokens" in warning
    assert "its role= is not that of 'one'" in warning
    assert "role after the context" in warning


def test_a_context_read_again_in_the_same_conversation_is_warned_of(tokenizer, wf):
    wf.agent("again", [wf["paper"], "Once more."], continues=wf["one"])
    (warning,) = compile_workflow(wf, tokenizer, max_positions=4096).warnings
    assert "agent 'again'" in warning
    assert "already in that conversation; leave it out there" in warning


def test_a_context_after_another_conversation_is_warned_of(tokenizer, wf):
    start = wf.agent("start", "Hello.")
    wf.agent("later", [wf["paper"], "Question."], continues=start)
    (warning,) = compile_workflow(wf, tokenizer, max_positions=4096).warnings
    assert "it comes after the conversation of 'start'" in warning


def test_the_beginning_that_most_agents_have_is_the_usual_one(tokenizer, wf):
    wf.agent("one", ["Before.", wf["paper"], "x"])
    wf.agent("three", ["Before.", wf["paper"], "y"])
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    (warning,) = graph.warnings
    assert warning == (
        "agent 'two': the 190 tokens of context 'paper' are prefilled again, because for 'one' it does not come first; "
        "put it first in both"
    )
    assert graph.by_id["context:paper"].id == graph.by_id["one"].parent == graph.by_id["three"].parent


def test_short_contexts_are_not_worth_a_warning(tokenizer):
    wf = Workflow("w")
    note = wf.context("note", "short")
    wf.agent("one", [note, "x"])
    wf.agent("two", ["x", note])
    assert compile_workflow(wf, tokenizer, max_positions=4096).warnings == ()


def test_a_context_nobody_reads_is_warned_of(tokenizer, wf):
    wf.context("forgotten", "text")
    assert compile_workflow(wf, tokenizer, max_positions=4096).warnings == (
        "context 'forgotten' is not read by any agent",
    )


def test_a_state_that_comes_later_than_the_agent_makes_no_edge(tokenizer):
    wf = Workflow("w")
    paper = wf.context("paper", PAPER)
    early = wf.agent("early", ["Before.", paper])
    for name in ("one", "two"):
        wf.agent(name, [early, paper, f"Question {name}."])
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    assert len(graph.warnings) == 1
    assert lost(graph) == []
