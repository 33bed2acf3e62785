"""Agents on different models: each reads its conversation with its own tokenizer and template, from text where it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab import Workflow
from kvlab.compiler import compile_workflow, resolve, state_ids
from kvlab.compiler.prompts import Spoken
from kvlab.errors import GraphError
from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.state.tokens import pack_ids, unpack_ids

DOCUMENT = "A document that everybody reads. " * 3
CONFIG = KVConfig(2, 1, 8, "float32", "{}", 4096)


class Wide:
    """Two ids a byte, and a template of its own."""

    vocabulary = 600
    max_positions = 4096
    stop_ids = frozenset({599})
    control_ids = frozenset({597, 598, 599})

    def text_ids(self, text):
        return pack_ids(id_ for byte in text.encode() for id_ in (300 + byte // 16, 320 + byte % 16))

    @property
    def separator(self):
        return self.text_ids(" / ")

    def open_conversation(self, role):
        return pack_ids([597]) + self.text_ids(role or "")

    def open_next_user(self):
        return pack_ids([597])

    def close_user(self):
        return pack_ids([598])

    def close_answer(self):
        return pack_ids([599])

    def decode(self, ids):
        found = unpack_ids(self.without_control(ids))
        return bytes(16 * (a - 300) + b - 320 for a, b in zip(found[::2], found[1::2], strict=True)).decode()

    def without_control(self, ids):
        return pack_ids(id_ for id_ in unpack_ids(ids) if id_ not in self.control_ids)


@pytest.fixture(scope="module")
def models(tokenizer):
    return {
        "own": Spoken(tokenizer, 4096, ModelIdentity("own", "w1", "t1"), CONFIG),
        "wide": Spoken(Wide(), 4096, ModelIdentity("wide", "w2", "t2"), CONFIG),
    }


def mixed(choice):
    """Five turns of one conversation, two readers of it, on models as chosen."""
    wf = Workflow("mixed")
    paper = wf.context("paper", DOCUMENT)
    last = wf.agent("turn-0", [paper, "Begin."], role="You.", max_new_tokens=8, model=choice[0])
    for number in range(1, 5):
        last = wf.agent(f"turn-{number}", f"Go on {number}.", continues=last, max_new_tokens=8, model=choice[number])
    for number in (5, 6):
        wf.agent(f"turn-{number}", [DOCUMENT, f"End {number}."], continues=last, max_new_tokens=8, model=choice[number])
    wf.agent("reader", [paper, last, wf["turn-1"], "Decide."], max_new_tokens=8, model=choice[0])
    return wf


@given(choice=st.lists(st.sampled_from([None, "own", "wide"]), min_size=7, max_size=7))
@pytest.mark.parametrize("least", [1, 32])
def test_a_state_and_what_is_fed_on_it_are_the_whole_conversation_in_the_models_words(tokenizer, models, least, choice):
    graph = compile_workflow(
        mixed(choice), tokenizer, min_shared_tokens=least, max_positions=4096, model="own", models=models
    )
    voices = {"": tokenizer, "wide": models["wide"].tokenizer}
    texts = {node.id: f"<{node.id}>" for node in graph.nodes}

    def outputs_for(node):
        """As the run has them: ids of the node's own model end unfed, other models' answers are read as text."""
        voice = voices[node.model]
        closing = voice.close_answer()[:4]
        return {
            one.id: voice.text_ids(texts[one.id]) + (closing if one.model == node.model else b"")
            for one in graph.nodes
            if one.sampling.max_new_tokens
        }

    for node in graph.nodes:
        voice, outputs = voices[node.model], outputs_for(node)
        full = resolve(node.full_pieces, outputs, voice)
        below = state_ids(graph.by_id[node.parent], outputs, voice) if node.parent else b""
        assert below + resolve(node.pieces, outputs, voice) == full
        if node.parent is not None:
            assert graph.by_id[node.parent].model == node.model
    name = "turn-4"
    node, voice = graph.by_id[name], voices[graph.by_id[name].model]
    text = voice.decode(resolve(node.full_pieces, outputs_for(node), voice))
    wanted = ["You.", "everybody reads", "Begin.", *(f"<turn-{n}>" for n in range(4)), "Go on 4."]
    assert [text.index(part) for part in wanted] == sorted(text.index(part) for part in wanted)
    refused = {(edge.source, edge.target): edge for edge in graph.state_edges if edge.fields}
    model = [one if one == "wide" else "" for one in choice]
    line = [(f"turn-{n}", f"turn-{n + 1}", n, n + 1) for n in range(4)] + [
        ("turn-4", f"turn-{n}", 4, n) for n in (5, 6)
    ]
    assert set(refused) == {(source, target) for source, target, a, b in line if model[a] != model[b]}
    for edge in refused.values():
        assert edge.fields == ("weights", "tokenizer")
        assert "weights: w" in edge.recompute_because


def test_a_turn_goes_on_from_the_nearest_state_of_its_model(tokenizer, models):
    wf = Workflow("there and back")
    first = wf.agent("first", [DOCUMENT, "Begin."], max_new_tokens=8)
    away = wf.agent("away", "Look at it.", continues=first, model="wide", max_new_tokens=8)
    wf.agent("back", "Go on.", continues=away, max_new_tokens=8)
    graph = compile_workflow(wf, tokenizer, max_positions=4096, model="own", models=models)
    assert [graph.by_id[name].parent for name in ("first", "away", "back")] == [None, None, "first"]
    assert set(graph.by_id["back"].waits_for) == {"first", "away"}
    assert [(e.source, e.target, bool(e.fields)) for e in graph.state_edges] == [
        ("first", "away", True),
        ("first", "back", False),
        ("away", "back", True),
    ]


def test_what_cannot_be_on_two_models_is_refused(tokenizer, models):
    wf = Workflow("w")
    first = wf.agent("first", "Begin.")
    wf.agent("maybe", "Go on.", continues=first, unless=(first, "DONE"), model="wide")
    with pytest.raises(GraphError, match="'maybe' may be skipped and would stand for 'first', which has another model"):
        compile_workflow(wf, tokenizer, max_positions=4096, model="own", models=models)
    wf.agent("maybe", "Go on.", continues=first, model="third")
    with pytest.raises(GraphError, match="asks for model 'third', and this lab has 'own', 'wide'") as caught:
        compile_workflow(wf, tokenizer, max_positions=4096, model="own", models=models)
    assert "lab.add_model('third')" in caught.value.hint
