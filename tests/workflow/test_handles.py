from __future__ import annotations

import pytest

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow


@pytest.fixture
def wf():
    return Workflow("w")


@pytest.fixture(params=["context", "agent", "merge"])
def handle(request, wf):
    if request.param == "context":
        return wf.context("it", "text")
    if request.param == "agent":
        return wf.agent("it", "text")
    return wf.merge("it", [wf.agent("a", "x"), wf.agent("b", "x")])


@pytest.mark.parametrize(
    "leak",
    [
        lambda handle: f"Review {handle}",
        lambda handle: f"Review {handle!s:>20}",
        "Review {}".format,
        "Review %s".__mod__,
        str,
    ],
)
def test_a_handle_does_not_become_text(handle, leak):
    with pytest.raises(InvalidInput, match="'it' is no text") as raised:
        leak(handle)
    assert "[it, 'Your question.']" in raised.value.hint


def test_a_handle_does_not_join_or_add(handle):
    with pytest.raises(TypeError):
        "Review " + handle
    with pytest.raises(TypeError):
        ", ".join(iter([handle]))


def test_a_handle_shows_itself_in_a_notebook(handle):
    assert "'it' of workflow 'w'" in repr(handle)
    assert "'it'" in repr([handle])


@pytest.mark.parametrize("leak", [lambda handle: f"Review {[handle]}", lambda handle: f"Review {handle!r}"])
def test_a_printed_handle_is_found_in_a_prompt(wf, handle, leak):
    text = leak(handle)
    with pytest.raises(InvalidInput, match="part 1 of the prompt of agent 'a2' contains the printed form"):
        wf.agent("a2", text)
    with pytest.raises(InvalidInput, match="the text of context 'c2' contains the printed form"):
        wf.context("c2", text)
    with pytest.raises(InvalidInput, match="role= of agent 'a2' contains the printed form"):
        wf.agent("a2", "x", role=text)


def test_a_document_may_speak_of_handles_that_are_not_here(wf):
    wf.context("docs", "It prints <kvlab agent 'planner' of workflow 'review'>.")
    assert "docs" in wf.contexts


def test_handles_are_equal_by_workflow_kind_and_name(wf):
    a, again, b = wf.agent("a", "x"), wf.agent("a", "y"), wf.agent("b", "x")
    assert a == again
    assert len({a, again, b}) == 2
    assert a != b
    assert a != Workflow("w").agent("a", "x")
    old_context = Workflow("w").context("a", "x")
    assert a != old_context
    assert a != "a"
