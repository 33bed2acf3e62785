"""Tools in the graph: they are waited for, in both flows, and their texts have a length."""

from __future__ import annotations

import pytest

from kvlab import Workflow
from kvlab.compiler import compile_workflow, resolve
from kvlab.errors import GraphError
from kvlab.state.tokens import pack_ids


def test_a_tool_is_a_node_that_is_waited_for(tokenizer, shown):
    wf = Workflow("w")
    paper = wf.context("paper", "Long text. " * 8)
    first = wf.agent("first", [paper, "Begin."], max_new_tokens=8)
    found = wf.tool("found", [paper, first, "words"], call="count-words", max_tokens=40)
    wf.agent("second", [found, "Go on."], continues=first, max_new_tokens=8)
    graph = compile_workflow(wf, tokenizer, min_shared_tokens=8, max_positions=10**4)
    tool, second = graph.by_id["found"], graph.by_id["second"]
    assert (tool.kind, tool.parent, tool.pieces, tool.full_pieces) == ("tool", None, (), ())
    assert tool.waits_for == tool.text_parents == ("first",)
    assert set(second.waits_for) == {"first", "found"} == set(second.text_parents)
    assert [(edge.source, edge.target) for edge in graph.data_edges] == [("first", "found"), ("found", "second")]
    outputs = {"first": pack_ids(b"one?"), "found": pack_ids(b"2 words.")}
    assert "2 words.\n\nGo on." in shown(resolve(second.pieces, outputs, tokenizer))
    assert graph.warnings == ()
    assert "■ found (≤ 40 tokens" in str(graph)
    with pytest.raises(GraphError, match="'found' is needed"):
        resolve(second.pieces, {"first": pack_ids(b"one?")}, tokenizer)


def test_a_tools_text_counts_at_full_length(tokenizer):
    wf = Workflow("w")
    found = wf.tool("found", "words", call="wait", max_tokens=500)
    wf.agent("reader", [found, "Go on."], max_new_tokens=8)
    graph = compile_workflow(wf, tokenizer, max_positions=300)
    assert "'reader' may run out of positions" in graph.warnings[0]


def test_tools_and_agents_that_wait_for_each_other_are_named(tokenizer):
    wf = Workflow("w")
    found = wf.tool("found", "words", call="wait")
    reader = wf.agent("reader", [found, "Go on."])
    wf.tool("found", [reader], call="wait")
    with pytest.raises(GraphError, match="'found' needs 'reader' needs 'found'|'reader' needs 'found' needs 'reader'"):
        compile_workflow(wf, tokenizer, max_positions=10**4)
