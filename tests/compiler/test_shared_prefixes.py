from __future__ import annotations

import pytest

from kvlab.compiler import compile_workflow, resolve
from kvlab.compiler.graph import Known, OutputOf
from kvlab.compiler.symbols import Symbols, cut, ends_of, shareable
from kvlab.state.tokens import n_ids, pack_ids
from kvlab.workflow import Workflow

PAPER = "words of the paper " * 10


@pytest.fixture
def wf():
    return Workflow("w")


def shared(graph):
    return [(node.id, node.parent) for node in graph.nodes if node.kind == "materialize"]


def compiled(wf, tokenizer, **options):
    return compile_workflow(wf, tokenizer, max_positions=4096, **options)


def test_one_agent_shares_with_nobody(tokenizer, wf):
    wf.agent("a", [wf.context("paper", PAPER), "x"])
    assert shared(compiled(wf, tokenizer)) == []


def test_the_minimum_is_met_exactly(tokenizer, wf):
    paper = wf.context("paper", "x" * 20)
    for name in "ab":
        wf.agent(name, [paper, name])
    length = n_ids(tokenizer.open_conversation(None)) + 20 + 2
    assert shared(compiled(wf, tokenizer, min_shared_tokens=length)) == [("context:paper", None)]
    assert shared(compiled(wf, tokenizer, min_shared_tokens=length + 1)) == []


def test_contexts_nest(tokenizer, wf):
    paper, appendix = wf.context("paper", PAPER), wf.context("appendix", "more " * 20)
    for name in "ab":
        wf.agent(name, [paper, appendix, name])
    wf.agent("c", [paper, "c"])
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("context:paper", None), ("context:appendix", "context:paper")]
    assert [graph.by_id[name].parent for name in "abc"] == ["context:appendix", "context:appendix", "context:paper"]
    assert graph.siblings == (("a", "b"),)


def test_a_few_tokens_of_common_question_do_not_hide_the_context(tokenizer, shown, wf):
    paper = wf.context("paper", PAPER)
    for i in (1, 2):
        wf.agent(f"a{i}", [paper, f"Argue weakness {i}."])
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("context:paper", None)]
    assert shown(resolve(graph.by_id["context:paper"].pieces, {}, tokenizer)).endswith(PAPER + "\n\n")


def test_a_long_common_question_is_shared_too(tokenizer, shown, wf):
    paper = wf.context("paper", PAPER)
    for i in (1, 2):
        wf.agent(f"a{i}", [paper, "Read carefully, then argue for or against weakness number " + str(i)])
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("prefix:1", None)]
    assert shown(resolve(graph.by_id["prefix:1"].pieces, {}, tokenizer)).endswith("weakness number ")


@pytest.mark.parametrize(("tail", "node"), [(31, "context:paper"), (32, "prefix:1")])
def test_a_common_question_counts_as_long_from_the_minimum_on(tokenizer, wf, tail, node):
    paper = wf.context("paper", PAPER)
    for name in "ab":
        wf.agent(name, [paper, "q" * tail + name])
    assert shared(compiled(wf, tokenizer)) == [(node, None)]


def test_a_short_context_and_a_short_question_are_shared_together(tokenizer, shown, wf):
    paper, note = wf.context("paper", PAPER), wf.context("note", "n" * 20)
    for name in "ab":
        wf.agent(name, [paper, note, "q" * 20 + name])
    wf.agent("c", [paper, "c"])
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("context:paper", None), ("prefix:1", "context:paper")]
    assert shown(resolve(graph.by_id["prefix:1"].pieces, {}, tokenizer)) == "n" * 20 + "\n\n" + "q" * 20


def test_a_context_cut_short_lends_its_name_to_nobody(tokenizer, wf):
    first, second = wf.context("first", PAPER + "version one"), wf.context("second", PAPER + "version two")
    wf.agent("a", [first, "x"])
    wf.agent("b", [second, "x"])
    assert shared(compiled(wf, tokenizer)) == [("prefix:1", None)]


def test_one_context_under_two_roles_makes_two_states(tokenizer, wf):
    paper = wf.context("paper", PAPER)
    for name, role in [("a", "Kind."), ("b", "Kind."), ("c", "Stern."), ("d", "Stern.")]:
        wf.agent(name, [paper, name], role=role)
    graph = compiled(wf, tokenizer, min_shared_tokens=64)
    assert shared(graph) == [("context:paper", None), ("context:paper#2", None)]
    assert [graph.by_id[name].parent for name in "abcd"] == ["context:paper"] * 2 + ["context:paper#2"] * 2


def test_equal_prompts_share_all_but_the_last_token(tokenizer, wf):
    for seed in range(3):
        wf.agent(f"sample-{seed}", "Tell me a long and winding story, please.", temperature=1, seed=seed)
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("prefix:1", None)]
    for seed in range(3):
        node = graph.by_id[f"sample-{seed}"]
        assert n_ids(resolve(node.pieces, {}, tokenizer)) == 1
        assert (node.sampling.temperature, node.sampling.seed) == (1.0, seed)
    assert graph.siblings == (("sample-0", "sample-1", "sample-2"),)


def test_a_prefix_with_an_answer_in_it_waits_for_the_answer(tokenizer, wf):
    paper = wf.context("paper", PAPER)
    plan = wf.agent("plan", [paper, "Plan."], max_new_tokens=40)
    for name in "ab":
        wf.agent(name, [paper, plan, name])
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("context:paper", None), ("prefix:1", "context:paper")]
    node = graph.by_id["prefix:1"]
    assert node.data_parents == ("plan",)
    assert set(node.waits_for) == {"context:paper", "plan"}
    assert [node.id for node in graph.nodes].index("prefix:1") > [node.id for node in graph.nodes].index("plan")
    assert graph.by_id["a"].data_parents == ("plan",)


def test_a_context_read_by_agents_that_continue_one_is_shared_on_its_state(tokenizer, wf):
    start = wf.agent("start", "Hello.", max_new_tokens=4)
    paper = wf.context("paper", PAPER)
    for name in "ab":
        wf.agent(name, [paper, name], continues=start)
    graph = compiled(wf, tokenizer)
    assert shared(graph) == [("context:paper", "start")]
    assert graph.by_id["context:paper"].text_parents == ("start",)
    assert graph.siblings == (("a", "b"),)


def test_agents_that_fork_ever_deeper_make_a_chain_of_prefixes(tokenizer, wf):
    words = [f"word-{i} " * 5 for i in range(150)]
    for i in range(1, 150):
        wf.agent(f"a{i}", [*words[:i], "end"])
    graph = compile_workflow(wf, tokenizer, max_positions=10**6)
    assert len(shared(graph)) == 148


PIECES = (Known(pack_ids([1, 2, 3])), OutputOf("a"), Known(b""), Known(pack_ids([4, 5]), "text"))


@pytest.mark.parametrize("depth", range(7))
def test_cutting_keeps_every_symbol(depth):
    symbols = Symbols()
    front, back = cut(PIECES, depth)
    assert symbols.of(front) + symbols.of(back) == symbols.of(PIECES)
    assert n_ids(symbols.of(front)) == depth


def test_unknown_pieces_are_equal_only_to_themselves():
    symbols = Symbols()
    assert symbols.of([OutputOf("a")]) == symbols.of([OutputOf("a")]) != symbols.of([OutputOf("b")])
    assert ends_of(PIECES) == [3, 4, 4, 6]


def test_the_last_known_token_is_never_shared():
    assert shareable(PIECES) == 5
    assert shareable((*PIECES, OutputOf("b"))) == 5
    assert shareable((*PIECES, OutputOf("b"), Known(b""))) == 5
    assert shareable((OutputOf("b"),)) == 0
