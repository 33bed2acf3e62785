"""Agents in namespaces: nothing that has K/V crosses from one to another, and every conversation says the same as without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab import Workflow
from kvlab.compiler import compile_workflow, resolve, state_ids
from kvlab.compiler.prompts import Spoken
from kvlab.errors import GraphError
from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.state.tokens import pack_ids

DOCUMENT = "A document that everybody reads. " * 3


def apart(choice):
    """Five turns of one conversation and three readers of it, in the namespaces chosen."""
    wf = Workflow("apart")
    paper = wf.context("paper", DOCUMENT)
    last = wf.agent("turn-0", [paper, "Begin."], role="You.", max_new_tokens=8, namespace=choice[0])
    for number in range(1, 5):
        last = wf.agent(
            f"turn-{number}", f"Go on {number}.", continues=last, max_new_tokens=8, namespace=choice[number]
        )
    for number in (5, 6):
        wf.agent(f"turn-{number}", [DOCUMENT, "End."], continues=last, max_new_tokens=8, namespace=choice[number])
    wf.agent("reader", [paper, "Begin.", last], role="You.", max_new_tokens=8, namespace=choice[7])
    wf.merge("sum", [last, wf["reader"]], how="summary", max_new_tokens=8, namespace=choice[8])
    return wf


def compiled(wf, tokenizer, **more):
    return compile_workflow(wf, tokenizer, max_positions=4096, **{"min_shared_tokens": 8, **more})


@given(choice=st.lists(st.sampled_from([None, "a", "b"]), min_size=9, max_size=9))
@pytest.mark.parametrize("least", [1, 32])
def test_every_agent_reads_the_same_ids_and_starts_from_a_state_of_its_namespace(tokenizer, least, choice):
    graph = compiled(apart(choice), tokenizer, min_shared_tokens=least)
    plain = compiled(apart([None] * 9), tokenizer, min_shared_tokens=least)
    outputs = {
        node.id: pack_ids(f"<{node.id}>".encode()) + tokenizer.close_answer()[:4]
        for node in graph.nodes
        if node.sampling.max_new_tokens
    }
    done = set()
    for node in graph.nodes:
        assert set(node.waits_for) <= done
        heard = {one.agent for one in node.full_pieces if hasattr(one, "agent")}
        assert heard <= done
        done.add(node.id)
        full = resolve(node.full_pieces, outputs, tokenizer)
        if node.id in plain.by_id and node.kind != "materialize":
            assert full == resolve(plain.by_id[node.id].full_pieces, outputs, tokenizer)
        below = state_ids(graph.by_id[node.parent], outputs, tokenizer) if node.parent else b""
        assert below + resolve(node.pieces, outputs, tokenizer) == full
        if node.parent is not None:
            assert graph.by_id[node.parent].namespace == node.namespace
        # What it feeds was said by somebody whom it waits for.
        fed = {one.agent for one in node.pieces if hasattr(one, "agent")}
        assert fed <= _before(graph, node)
    refused = {(edge.source, edge.target): edge for edge in graph.state_edges if edge.fields}
    line = [(n, n + 1) for n in range(4)] + [(4, 5), (4, 6)]
    assert set(refused) == {(f"turn-{a}", f"turn-{b}") for a, b in line if choice[a] != choice[b]}
    for edge in refused.values():
        assert edge.fields == ("namespace",)
        assert "namespace" in edge.recompute_because


def _before(graph, node):
    """Names of all that must have run before a node."""
    found, waiting = set(), list(node.waits_for)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.by_id[name].waits_for
    return found


def test_a_turn_goes_on_from_the_nearest_state_of_its_namespace(tokenizer):
    wf = Workflow("there and back")
    first = wf.agent("first", [DOCUMENT, "Begin."], max_new_tokens=8, namespace="a")
    away = wf.agent("away", "Look at it.", continues=first, max_new_tokens=8)
    wf.agent("back", "Go on.", continues=away, max_new_tokens=8, namespace="a")
    graph = compiled(wf, tokenizer)
    assert [graph.by_id[name].parent for name in ("first", "away", "back")] == [None, None, "first"]
    assert set(graph.by_id["back"].waits_for) == {"first", "away"}
    assert [(e.source, e.target, e.fields) for e in graph.state_edges] == [
        ("first", "away", ("namespace",)),
        ("first", "back", ()),
        ("away", "back", ("namespace",)),
    ]
    assert "a state of namespace 'a' cannot be used in the run's own namespace" in str(graph)


def test_a_shared_prefix_is_made_once_a_namespace(tokenizer):
    wf = Workflow("shared")
    paper = wf.context("paper", DOCUMENT)
    for namespace in ("a", "b"):
        for n in range(2):
            wf.agent(f"{namespace}{n}", [paper, f"Question {n}."], max_new_tokens=8, namespace=namespace)
    wf.agent("alone", [paper, "Question."], max_new_tokens=8)
    graph = compiled(wf, tokenizer, min_shared_tokens=32)
    made = [(node.id, node.namespace) for node in graph.nodes if node.kind == "materialize"]
    assert made == [("context:paper", "a"), ("context:paper#2", "b")]
    parents = {node.id: node.parent for node in graph.nodes if node.kind == "resume"}
    assert parents == {
        "a0": "context:paper",
        "a1": "context:paper",
        "b0": "context:paper#2",
        "b1": "context:paper#2",
        "alone": None,
    }
    assert not graph.warnings  # that is what namespaces are for


def test_a_model_and_a_namespace_may_both_differ(tokenizer):
    config = KVConfig(2, 1, 8, "float32", "{}", 4096)
    models = {
        "own": Spoken(tokenizer, 4096, ModelIdentity("own", "w1", "t1"), config),
        "wide": Spoken(tokenizer, 4096, ModelIdentity("wide", "w2", "t1"), replace(config, layers=3)),
    }
    wf = Workflow("both")
    first = wf.agent("first", [DOCUMENT, "Begin."], max_new_tokens=8)
    wf.agent("second", "On.", continues=first, model="wide", namespace="a", max_new_tokens=8)
    graph = compiled(wf, tokenizer, model="own", models=models)
    (edge,) = graph.state_edges
    assert edge.fields == ("weights", "layers", "namespace")


def test_a_turn_cannot_stand_for_one_of_another_namespace(tokenizer):
    wf = Workflow("w")
    first = wf.agent("first", "Begin.")
    wf.agent("maybe", "Go on.", continues=first, unless=(first, "DONE"), namespace="a")
    with pytest.raises(GraphError, match="'first', which has another namespace"):
        compiled(wf, tokenizer)
