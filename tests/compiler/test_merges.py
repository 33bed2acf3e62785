from __future__ import annotations

import pytest

from kvlab.compiler import compile_workflow, resolve, state_ids
from kvlab.compiler.turns import turns_of
from kvlab.errors import MergeRefused
from kvlab.state.tokens import pack_ids
from kvlab.workflow import Workflow
from kvlab.workflow.definitions import AnswerPart, ContextPart, TextPart


@pytest.fixture
def wf():
    wf = Workflow("w")
    paper = wf.context("paper", "the paper " * 10)
    plan = wf.agent("plan", [paper, "Plan."], max_new_tokens=8)
    left = wf.agent("left", "Go left.", continues=plan, max_new_tokens=8)
    wf.agent("left-on", "Go on.", continues=left, max_new_tokens=8)
    wf.agent("right", "Go right.", continues=plan, max_new_tokens=8)
    wf.agent("alone", [paper, "Think."], max_new_tokens=8)
    return wf


def turn(wf, name):
    return turns_of(wf.contexts, wf.agents)[name]


def test_a_summary_goes_on_from_the_last_common_turn_and_reads_every_answer_after_it(wf):
    wf.merge("sum", [wf["left-on"], wf["right"]], how="summary", instruction="Sum up.")
    merged = turn(wf, "sum")
    assert merged.continues == "plan"
    assert merged.parts == (AnswerPart("left"), AnswerPart("left-on"), AnswerPart("right"), TextPart("Sum up."))


def test_a_summary_of_a_branch_and_what_continues_it_reads_only_what_is_new(wf):
    wf.merge("sum", [wf["left-on"], wf["left"]], how="summary", instruction="Sum up.")
    assert turn(wf, "sum").continues == "left"
    assert turn(wf, "sum").parts == (AnswerPart("left-on"), TextPart("Sum up."))


def test_a_summary_of_different_conversations_begins_with_what_their_prompts_share(wf):
    wf.merge("sum", [wf["left"], wf["alone"]], how="summary", instruction="Sum up.")
    merged = turn(wf, "sum")
    assert merged.continues is None
    assert merged.parts == (
        ContextPart("paper"),
        AnswerPart("plan"),
        AnswerPart("left"),
        AnswerPart("alone"),
        TextPart("Sum up."),
    )


def test_a_summary_does_not_read_again_what_is_in_its_conversation(wf):
    merged = wf.merge("merged", [wf["plan"], wf["left"]])
    wf.agent("after", "And then?", continues=merged)
    wf.merge("sum", [wf["left"], wf["after"]], how="summary", instruction="Sum up.")
    assert turn(wf, "sum").continues == "left"
    assert turn(wf, "sum").parts == (AnswerPart("after"), TextPart("Sum up."))


def test_different_roles_share_nothing(wf):
    wf.agent("alone", [wf["paper"], "Think."], role="Be brief.")
    wf.merge("sum", [wf["plan"], wf["alone"]], how="summary", instruction="Sum up.")
    assert turn(wf, "sum").parts == (AnswerPart("plan"), AnswerPart("alone"), TextPart("Sum up."))
    assert turn(wf, "sum").role is None


def test_a_common_role_is_kept(wf):
    for name in ("one", "two"):
        wf.agent(name, [wf["paper"], name], role="Be brief.")
    wf.merge("sum", [wf["one"], wf["two"]], how="summary")
    assert turn(wf, "sum").role == "Be brief."


def test_the_summary_node_shows_which_states_it_cannot_use(tokenizer, wf):
    wf.merge("sum", [wf["left"], wf["right"]], how="summary")
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    node = graph.by_id["sum"]
    assert (node.kind, node.parent, node.data_parents) == ("merge", "plan", ("left", "right"))
    edges = {edge.source: edge for edge in graph.state_edges if edge.target == "sum"}
    assert edges["plan"].recompute_because is None
    assert "cannot be joined exactly" in edges["left"].recompute_because
    assert "cannot be joined exactly" in edges["right"].recompute_because


def test_a_prefix_merge_is_the_longest_branch_and_can_be_read_and_continued(tokenizer, shown, wf):
    merged = wf.merge("merged", [wf["plan"], wf["left-on"], wf["left"]])
    wf.agent("after", "And then?", continues=merged)
    wf.agent("reader", [merged, "Judge."])
    graph = compile_workflow(wf, tokenizer, max_positions=4096)
    node = graph.by_id["merged"]
    assert (node.kind, node.parent, node.pieces, node.sampling.max_new_tokens) == ("merge", "left-on", (), 0)
    assert [edge.source for edge in graph.state_edges if edge.target == "merged"] == ["left-on", "plan", "left"]
    outputs = {name: pack_ids([*name.encode(), 258]) for name in ("plan", "left", "left-on")}
    assert state_ids(node, outputs, tokenizer) == state_ids(graph.by_id["left-on"], outputs, tokenizer)
    after = graph.by_id["after"]
    below = state_ids(node, outputs, tokenizer)
    assert below + resolve(after.pieces, outputs, tokenizer) == resolve(after.full_pieces, outputs, tokenizer)
    assert after.parent == "merged"
    assert shown(resolve(after.pieces, outputs, tokenizer)).startswith("<end>\n<start>user\nAnd then?")
    assert "left-on\n\nJudge." in shown(resolve(graph.by_id["reader"].pieces, outputs, tokenizer))
    assert graph.by_id["reader"].data_parents == ("left-on",)


def test_a_prefix_merge_of_parted_branches_is_refused(wf):
    wf.merge("merged", [wf["plan"], wf["left"], wf["right"]])
    with pytest.raises(MergeRefused, match="different continuations") as raised:
        turns_of(wf.contexts, wf.agents)
    assert "summary" in raised.value.hint
    assert raised.value.data["agent"] == "merged"


def test_merging_a_prefix_merge_with_its_tip_adds_nothing(wf):
    merged = wf.merge("merged", [wf["plan"], wf["left"]])
    wf.merge("again", [merged, wf["left"]])
    assert turn(wf, "again").speaker == "left"
    assert turn(wf, "again").continues == "merged"
