from __future__ import annotations

import pytest

from kvlab.compiler import compile_workflow, state_ids
from kvlab.errors import ContextTooLong
from kvlab.state.tokens import n_ids, pack_ids
from kvlab.workflow import Workflow


@pytest.fixture
def around(tokenizer):
    """Template tokens of a first turn."""
    return n_ids(tokenizer.open_conversation(None)) + n_ids(tokenizer.close_user())


def test_a_prompt_that_cannot_fit_is_refused_with_need_and_have(tokenizer, around):
    wf = Workflow("w")
    wf.agent("reader", "x" * 100, max_new_tokens=20)
    assert compile_workflow(wf, tokenizer, max_positions=around + 120).warnings == ()
    with pytest.raises(ContextTooLong, match="agent 'reader'") as raised:
        compile_workflow(wf, tokenizer, max_positions=around + 119)
    assert raised.value.data == {"agent": "reader", "need": around + 120, "have": around + 119}
    assert raised.value.hint == "set its max_new_tokens to at most 19"


def test_without_room_for_one_token_the_hint_is_to_read_less(tokenizer, around):
    wf = Workflow("w")
    wf.agent("reader", "x" * 100, max_new_tokens=1)
    with pytest.raises(ContextTooLong) as raised:
        compile_workflow(wf, tokenizer, max_positions=around + 100)
    assert raised.value.hint == "shorten what it reads"


def test_answers_that_may_be_long_warn_and_do_not_refuse(tokenizer, around):
    wf = Workflow("w")
    writer = wf.agent("writer", "x", max_new_tokens=50)
    wf.agent("reader", [writer], max_new_tokens=60)
    assert compile_workflow(wf, tokenizer, max_positions=around + 110).warnings == ()
    (warning,) = compile_workflow(wf, tokenizer, max_positions=around + 109).warnings
    assert "agent 'reader' may run out of positions" in warning
    assert f"it needs {around + 110}" in warning


def test_a_continued_conversation_counts_whole(tokenizer):
    wf = Workflow("w")
    first = wf.agent("first", "x" * 100, max_new_tokens=10)
    wf.agent("second", "y" * 100, continues=first, max_new_tokens=10)
    with pytest.raises(ContextTooLong, match="agent 'second'"):
        compile_workflow(wf, tokenizer, max_positions=200)


@pytest.mark.parametrize("length", [1, 7, 10])
def test_the_edges_bound_holds_the_longest_state_and_is_met_at_full_length(tokenizer, length):
    wf = Workflow("w")
    first = wf.agent("first", "x", max_new_tokens=10)
    second = wf.agent("second", "y", continues=first, max_new_tokens=10)
    wf.agent("third", [first, "z"], continues=second, max_new_tokens=10)
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    outputs = dict.fromkeys(("first", "second"), pack_ids([65] * length))
    for edge in graph.state_edges:
        actual = n_ids(state_ids(graph.by_id[edge.source], outputs, tokenizer))
        assert actual <= edge.n_tokens
        assert (actual == edge.n_tokens) == (length == 10)
