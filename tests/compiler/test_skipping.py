"""Turns that may be skipped: what is left of a conversation then, in both flows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab import Workflow
from kvlab.compiler import compile_workflow, resolve, state_ids
from kvlab.errors import GraphError, InvalidInput
from kvlab.state.tokens import pack_ids
from kvlab.store.graph_document import graph_document

END = 258
DOCUMENT = "A document that everybody reads. " * 4
MAY_SKIP = ("revision-1", "critique-2", "revision-2")


def loop() -> Workflow:
    wf = Workflow("loop")
    paper = wf.context("paper", DOCUMENT)
    draft = wf.agent("draft", [paper, "Write."], max_new_tokens=8)
    one = wf.agent("critique-1", [paper, "Draft:", draft, "Weak?"], max_new_tokens=8)
    first = wf.agent("revision-1", ["Critic:", one, "Again."], continues=draft, unless=(one, "DONE"), max_new_tokens=8)
    two = wf.agent("critique-2", ["Draft:", first, "Weak?"], continues=one, unless=(one, "DONE"), max_new_tokens=8)
    second = wf.agent("revision-2", ["Critic:", two, "Again."], continues=first, unless=(two, "DONE"), max_new_tokens=8)
    joined = wf.merge("joined", [first, second])
    for number in (1, 2):
        wf.agent(f"title-{number}", f"{DOCUMENT} Title {number}.", continues=joined, max_new_tokens=8)
    wf.agent("end", [paper, second, "Decide."], max_new_tokens=8)
    return wf


def said(graph, drawn, skipped):
    """Outputs of a run: a skipped agent has that of the one it stands for; half of them end without the stop token."""
    outputs = {}
    for node in graph.nodes:
        if node.id in skipped:
            outputs[node.id] = outputs[node.unless.instead]
        elif node.sampling.max_new_tokens:
            outputs[node.id] = pack_ids([*f"<{node.id}>".encode(), *([END] if drawn[len(outputs) % 8] else [])])
    return outputs


@given(drawn=st.lists(st.booleans(), min_size=8, max_size=8), skipped=st.sets(st.sampled_from(MAY_SKIP)))
@pytest.mark.parametrize("least", [1, 16, 64])
def test_a_state_and_what_is_fed_on_it_are_what_textflow_feeds(tokenizer, shown, least, drawn, skipped):
    graph = compile_workflow(loop(), tokenizer, min_shared_tokens=least, max_positions=10**5)
    outputs = said(graph, drawn, skipped)
    for node in graph.nodes:
        if node.id in skipped:
            continue
        full = resolve(node.full_pieces, outputs, tokenizer, skipped)
        below = state_ids(graph.by_id[node.parent], outputs, tokenizer, skipped) if node.parent else b""
        assert below + resolve(node.pieces, outputs, tokenizer, skipped) == full
    text = shown(resolve(graph.by_id["title-1"].full_pieces, outputs, tokenizer, skipped))
    turns = ["draft", *(name for name in ("revision-1", "revision-2") if name not in skipped)]
    assert text.count("<start>assistant") == len(turns) + 1
    places = [text.index(f"assistant\n<{name}>") for name in turns]
    assert places == sorted(places)
    stands = next(name for name in ("revision-2", "revision-1", "draft") if name not in skipped)
    assert f"\n\n<{stands}>\n\nDecide." in shown(resolve(graph.by_id["end"].full_pieces, outputs, tokenizer, skipped))


def test_nobody_computes_for_a_turn_before_it_is_known_whether_it_runs(tokenizer):
    wf = Workflow("pair")
    first = wf.agent("first", "Begin.")
    judge = wf.agent("judge", "Stop?")
    for number in (1, 2):
        wf.agent(f"maybe-{number}", f"{DOCUMENT} Go {number}.", continues=first, unless=(judge, "yes"))
    graph = compile_workflow(wf, tokenizer, min_shared_tokens=8, max_positions=10**5)
    assert {node.kind for node in graph.nodes} == {"resume"}
    assert graph.siblings == ()
    for number in (1, 2):
        node = graph.by_id[f"maybe-{number}"]
        assert "judge" in node.waits_for
        assert "judge" in node.text_parents
    assert [node["unless"] for node in graph_document(graph)["nodes"]] == [None, None, *[["judge", "yes"]] * 2]
    assert "maybe-1 (" in str(graph)
    assert "unless judge says 'yes'" in str(graph)


def test_what_may_be_left_out_is_not_needed_to_fit(tokenizer):
    wf = Workflow("long")
    first = wf.agent("first", "Begin.", max_new_tokens=8)
    maybe = wf.agent("maybe", "word " * 60, continues=first, unless=(first, "DONE"), max_new_tokens=8)
    wf.agent("last", "End.", continues=maybe, max_new_tokens=8)
    graph = compile_workflow(wf, tokenizer, max_positions=370)
    assert any("'last' may run out of positions" in warning for warning in graph.warnings)


def test_conditions_that_cannot_be_meant_are_refused(tokenizer):
    wf = Workflow("wrong")
    one = wf.agent("one", "Begin.")
    with pytest.raises(InvalidInput, match="needs continues="):
        wf.agent("two", "On.", unless=(one, "DONE"))
    with pytest.raises(InvalidInput, match="must be an agent and a text"):
        wf.agent("two", "On.", continues=one, unless="DONE")
    with pytest.raises(InvalidInput, match="must be an agent, not str"):
        wf.agent("two", "On.", continues=one, unless=("one", "DONE"))
    with pytest.raises(InvalidInput, match="is empty"):
        wf.agent("two", "On.", continues=one, unless=(one, " "))
    two = wf.agent("two", "On.", continues=one)
    with pytest.raises(InvalidInput, match="refers to itself"):
        wf.agent("two", "On.", continues=one, unless=(two, "DONE"))
    wf.agent("one", "Begin.", continues=wf.agent("zero", "First."), unless=(two, "DONE"))
    with pytest.raises(GraphError, match="wait for each other"):
        compile_workflow(wf, tokenizer, max_positions=10**5)
