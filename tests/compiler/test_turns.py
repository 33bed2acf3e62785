from __future__ import annotations

import pytest

from kvlab.compiler.turns import turns_of
from kvlab.errors import GraphError
from kvlab.workflow import Workflow


@pytest.fixture
def wf():
    return Workflow("w")


def order(wf):
    return list(turns_of(wf.contexts, wf.agents))


def test_agents_that_need_nothing_keep_the_order_of_definition(wf):
    for name in "dacb":
        wf.agent(name, "x")
    assert order(wf) == list("dacb")


def test_a_redefined_agent_comes_after_what_it_now_needs(wf):
    first = wf.agent("first", "x")
    wf.agent("second", ["y"], continues=first)
    third = wf.agent("third", "z")
    wf.agent("first", [third, "x"])
    assert order(wf) == ["third", "first", "second"]


def test_a_long_chain_is_no_matter(wf):
    last = wf.agent("n0", "x")
    for i in range(1, 3000):
        last = wf.agent(f"n{i}", "x", continues=last)
    assert order(wf) == [f"n{i}" for i in range(3000)]


def test_a_long_chain_defined_backwards_is_no_matter(wf):
    handles = [wf.agent(f"n{i}", "x") for i in range(2000)]
    for i in range(1999):
        wf.agent(f"n{i}", ["x"], continues=handles[i + 1])
    assert order(wf) == [f"n{i}" for i in reversed(range(2000))]


@pytest.mark.parametrize("by", ["text", "state"])
def test_a_loop_closed_by_redefinition_is_refused_and_all_in_it_named(wf, by):
    a = wf.agent("a", "x")
    b = wf.agent("b", [a, "x"])
    c = wf.agent("c", "x", continues=b)
    wf.agent("d", [c, "x"])
    if by == "text":
        wf.agent("a", [c, "x"])
    else:
        wf.agent("a", "x", continues=c)
    with pytest.raises(GraphError, match="'a' needs 'c' needs 'b' needs 'a'") as raised:
        order(wf)
    assert sorted(raised.value.data["agents"]) == ["a", "b", "c"]


def test_a_loop_through_a_merge_is_refused(wf):
    a, b = wf.agent("a", "x"), wf.agent("b", "y")
    both = wf.merge("both", [a, b], how="summary")
    wf.agent("a", [both, "x"])
    with pytest.raises(GraphError, match="wait for each other"):
        order(wf)


def test_a_context_replaced_by_an_agent_is_missed_where_it_is_read(wf):
    paper = wf.context("paper", "text")
    wf.agent("reader", [paper, "x"])
    wf.agent("paper", "y")
    with pytest.raises(GraphError, match="agent 'reader' needs the context 'paper'"):
        order(wf)


def test_an_agent_replaced_by_a_context_is_missed_where_it_is_continued(wf):
    plan = wf.agent("plan", "x")
    wf.agent("next", "y", continues=plan)
    wf.context("plan", "text")
    with pytest.raises(GraphError, match="agent 'next' needs the agent 'plan'") as raised:
        order(wf)
    assert raised.value.data == {"agent": "next", "missing": "plan"}
