"""Properties of every graph, against an oracle that writes conversations straight from the definitions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvlab.compiler import compile_workflow, resolve, state_ids
from kvlab.compiler.graph import EndOfTurn, Known, OutputOf, RawOutputOf
from kvlab.compiler.symbols import Symbols, cut, shareable
from kvlab.errors import GraphError, InvalidInput, MergeRefused
from kvlab.state.tokens import common_prefix, n_ids, pack_ids
from kvlab.workflow import Workflow
from kvlab.workflow.definitions import AgentDefinition, AnswerPart, ContextPart, MergeDefinition, TextPart

TEXTS = ("a", "ab", "Argue weakness one.", "Argue weakness two.", "x" * 40, "x" * 40 + "y" * 40)
CONTEXTS = ("a long paper " * 6, "a long paper " * 6 + "with an appendix " * 3, "z" * 20)


@st.composite
def workflows(draw):
    wf = Workflow("any")
    contexts = [
        wf.context(f"c{i}", text) for i, text in enumerate(draw(st.lists(st.sampled_from(CONTEXTS), max_size=3)))
    ]
    agents = []
    for i in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["root", "root", "continue", "summary", "prefix"]))
        limit = draw(st.integers(1, 40))
        if kind == "summary" and len(agents) >= 2:
            branches = draw(st.lists(st.sampled_from(agents), min_size=2, max_size=3, unique=True))
            agents.append(wf.merge(f"n{i}", branches, how="summary", max_new_tokens=limit))
            continue
        lines = [line for agent in agents if len(line := _line(wf, agent.name)) >= 2]
        if kind == "prefix" and lines:
            line = draw(st.sampled_from(lines))
            branches = draw(st.lists(st.sampled_from(line), min_size=2, max_size=3, unique=True))
            agents.append(wf.merge(f"n{i}", [wf[name] for name in branches], how="prefix"))
            continue
        parts = draw(
            st.lists(st.sampled_from([*contexts, *agents, *TEXTS]), min_size=1, max_size=4)
            if draw(st.booleans()) or not contexts
            else st.tuples(st.just(contexts[0]), st.sampled_from([*agents, *TEXTS])).map(list)
        )
        if kind in ("continue", "prefix") and agents:
            agents.append(wf.agent(f"n{i}", parts, continues=draw(st.sampled_from(agents)), max_new_tokens=limit))
        else:
            role = draw(st.sampled_from([None, None, None, "Be brief."]))
            agents.append(wf.agent(f"n{i}", parts, role=role, max_new_tokens=limit))
    return wf


def _line(wf, name):
    """Names of the conversation that ends with ``name``; a prefix merge stands on its longest branch."""
    definition = wf.agents[name]
    if isinstance(definition, AgentDefinition):
        return [*(_line(wf, definition.continues) if definition.continues else []), name]
    lines = [_line(wf, branch) for branch in definition.branches]
    if definition.how == "prefix":
        return [*max(lines, key=len), name]
    return [*_shared(lines), name]


def _shared(lines):
    return [step[0] for step in itertools.takewhile(lambda step: len(set(step)) == 1, zip(*lines, strict=False))]


@st.composite
def outputs_of(draw, wf):
    """Ids every agent might have sampled: control ids anywhere, the end-of-turn id last or not."""
    outputs = {}
    for name, definition in wf.agents.items():
        if definition.generation is not None:
            ids = draw(st.lists(st.integers(0, 258), min_size=1, max_size=definition.generation.max_new_tokens))
            outputs[name] = pack_ids([*ids[:-1], 258] if draw(st.booleans()) else ids)
    return outputs


class Oracle:
    """What conversations say, by the words of the design and without pieces."""

    def __init__(self, wf, outputs, tokenizer):
        self.wf, self.outputs, self.tokenizer = wf, outputs, tokenizer

    def speaker(self, name):
        definition = self.wf.agents[name]
        if isinstance(definition, MergeDefinition) and definition.how == "prefix":
            return self.speaker(_line(self.wf, name)[-2])
        return name

    def part(self, part):
        if isinstance(part, TextPart):
            return self.tokenizer.text_ids(part.text)
        if isinstance(part, ContextPart):
            return self.tokenizer.text_ids(self.wf.contexts[part.context].text)
        return self.tokenizer.without_control(self.outputs[self.speaker(part.agent)])

    def turn(self, parts):
        return self.tokenizer.separator.join(self.part(part) for part in parts) + self.tokenizer.close_user()

    def said(self, name):
        """All of the conversation up to and with the answer of ``name``, its last token included."""
        if self.speaker(name) != name:
            return self.said(self.speaker(name))
        return self.prompt(name) + self.outputs[name]

    def prompt(self, name):
        continues, role, parts = self.start(name)
        return self._begin(continues, role) + self.turn(parts)

    def start(self, name):
        definition = self.wf.agents[name]
        if isinstance(definition, AgentDefinition):
            return definition.continues, definition.role, list(definition.parts)
        lines = [_line(self.wf, branch) for branch in definition.branches]
        shared = _shared(lines)
        heard = {self.speaker(step) for step in shared}
        answers = []
        for line in lines:
            for step in line[len(shared) :]:
                if (speaker := self.speaker(step)) not in heard:
                    heard.add(speaker)
                    answers.append(AnswerPart(speaker))
        parts = [*answers, TextPart(definition.instruction)]
        if shared:
            return shared[-1], None, parts
        firsts = [self.start(line[0]) for line in lines]
        if len({role for _, role, _ in firsts}) > 1:
            return None, None, parts
        return None, firsts[0][1], [*_shared([begin for _, _, begin in firsts]), *parts]

    def _begin(self, continues, role):
        if continues is None:
            return self.tokenizer.open_conversation(role)
        said, closing = self.said(continues), self.tokenizer.close_answer()
        ended = said[-4:] == closing[:4]
        return said + (closing[4:] if ended else closing) + self.tokenizer.open_next_user()


ANY = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ANY
@given(data=st.data(), wf=workflows(), least=st.sampled_from([1, 8, 32, 64]))
def test_both_flows_feed_the_same_ids_and_they_are_what_the_definitions_say(tokenizer, data, wf, least):
    graph = compile_workflow(wf, tokenizer, min_shared_tokens=least, max_positions=10**6)
    outputs = data.draw(outputs_of(wf))
    oracle = Oracle(wf, outputs, tokenizer)
    for node in graph.nodes:
        full = resolve(node.full_pieces, outputs, tokenizer)
        below = state_ids(graph.by_id[node.parent], outputs, tokenizer) if node.parent else b""
        assert below + resolve(node.pieces, outputs, tokenizer) == full
        if node.id in outputs:
            assert full == oracle.prompt(node.id)
            assert state_ids(node, outputs, tokenizer) == full + outputs[node.id][:-4]
        elif node.kind == "merge":
            assert full == oracle.said(node.id)[:-4]


@ANY
@given(wf=workflows(), least=st.sampled_from([1, 8, 32, 64]))
def test_nodes_can_run_in_their_order_and_each_knows_what_it_needs(tokenizer, wf, least):
    graph = compile_workflow(wf, tokenizer, min_shared_tokens=least, max_positions=10**6)
    ran = set()
    for node in graph.nodes:
        assert set(node.waits_for) <= ran
        assert set(node.text_parents) <= ran
        needed = {piece.agent for piece in node.pieces if isinstance(piece, (OutputOf, RawOutputOf))}
        assert needed <= set(node.data_parents)
        for piece in node.pieces:
            if isinstance(piece, EndOfTurn):
                parent = graph.by_id[node.parent]
                assert piece.agent in (parent.id, *parent.text_parents)
        if node.kind == "resume" or node.sampling.max_new_tokens:
            assert node.known_tokens >= 1
            assert node.sampling.branch == f"{node.id}/0"
        ran.add(node.id)
    assert {node.id for node in graph.nodes if node.kind != "materialize"} == set(wf.agents)
    order = {node.id: index for index, node in enumerate(graph.nodes)}
    for edge in (*graph.data_edges, *graph.state_edges):
        assert order[edge.source] < order[edge.target]
    used = [(edge.source, edge.target) for edge in graph.state_edges]
    assert len(used) == len(set(used))
    assert {(node.parent, node.id) for node in graph.nodes if node.parent} <= set(used)


@ANY
@given(wf=workflows(), least=st.sampled_from([1, 8, 32, 64]))
def test_shared_prefixes_serve_two_or_more_and_lose_less_than_the_minimum(tokenizer, wf, least):
    graph = compile_workflow(wf, tokenizer, min_shared_tokens=least, max_positions=10**6)

    def weight(pieces):
        total = 0
        for piece in pieces:
            if isinstance(piece, Known):
                total += n_ids(piece.ids)
            elif isinstance(piece, OutputOf):
                total += wf.agents[piece.agent].generation.max_new_tokens
            else:
                assert isinstance(piece, EndOfTurn)
                total += 1 + n_ids(tokenizer.close_answer())
        return total

    def start(node):
        """The turn whose state it stands on, and what it feeds on top of that."""
        pieces = ()
        while True:
            pieces = node.pieces + pieces
            node = graph.by_id.get(node.parent)
            if node is None or node.kind != "materialize":
                return node.id if node else None, pieces

    def materialized_below(node):
        found = []
        while node.parent and graph.by_id[node.parent].kind == "materialize":
            node = graph.by_id[node.parent]
            found.append(node.id)
        return found

    turns = [node for node in graph.nodes if node.kind != "materialize" and node.pieces]
    served = {node.id: set(materialized_below(node)) for node in turns}
    for node in graph.nodes:
        if node.kind == "materialize":
            assert sum(node.id in chain for chain in served.values()) >= 2
            assert weight(node.pieces) >= least
    symbols = Symbols()
    for a, b in itertools.combinations(turns, 2):
        (start_a, own_a), (start_b, own_b) = start(a), start(b)
        if start_a != start_b:
            assert not served[a.id] & served[b.id]
            continue
        reach_a, reach_b = (symbols.of(own)[: 4 * shareable(own)] for own in (own_a, own_b))
        possible = weight(cut(own_a, common_prefix(reach_a, reach_b))[0])
        used = sum(weight(graph.by_id[id_].pieces) for id_ in served[a.id] & served[b.id])
        assert used <= possible
        assert possible - used < least


@ANY
@given(wf=workflows())
def test_compiling_is_pure(tokenizer, wf):
    before = (dict(wf.contexts), dict(wf.agents), wf.notices)
    one = compile_workflow(wf, tokenizer, max_positions=10**6)
    assert compile_workflow(wf, tokenizer, max_positions=10**6) == one
    assert (dict(wf.contexts), dict(wf.agents), wf.notices) == before


@pytest.fixture
def review():
    wf = Workflow("review")
    paper = wf.context("paper", "words of the paper " * 10)
    plan = wf.agent("planner", [paper, "Name three weaknesses."], max_new_tokens=48)
    sides = [wf.agent(f"reviewer-{i}", f"Argue weakness {i}.", continues=plan) for i in (1, 2, 3)]
    wf.agent("editor", [paper, *sides, "Write the verdict."])
    return wf


def test_the_review_workflow_is_the_graph_one_expects(tokenizer, review):
    graph = compile_workflow(review, tokenizer, max_positions=4096)
    reviewers = ("reviewer-1", "reviewer-2", "reviewer-3")
    assert [(node.id, node.kind, node.parent) for node in graph.nodes] == [
        ("context:paper", "materialize", None),
        ("planner", "resume", "context:paper"),
        *((name, "resume", "planner") for name in reviewers),
        ("editor", "resume", "context:paper"),
    ]
    assert graph.siblings == (reviewers,)
    assert [(edge.source, edge.target) for edge in graph.data_edges] == [(name, "editor") for name in reviewers]
    assert graph.by_id["context:paper"].lane == "paper"
    assert graph.by_id["editor"].waits_for == ("context:paper", *reviewers)
    assert graph.warnings == ()
    opening = n_ids(tokenizer.open_conversation(None))
    shared = opening + 190 + 2
    prompt = shared + len("Name three weaknesses.") + n_ids(tokenizer.close_user())
    assert [edge.n_tokens for edge in graph.state_edges] == [shared, *[prompt + 47] * 3, shared]
    assert all(edge.recompute_because is None for edge in graph.state_edges)


def test_the_first_conversation_reads_as_the_template_writes_it(tokenizer, shown, review):
    graph = compile_workflow(review, tokenizer, max_positions=4096)
    outputs = {"planner": pack_ids([*b"One two.", 258])} | {f"reviewer-{i}": pack_ids(b"So") for i in (1, 2, 3)}
    said = shown(resolve(graph.by_id["reviewer-2"].full_pieces, outputs, tokenizer))
    paper = "words of the paper " * 10
    assert said == (
        f"<s><start>user\n{paper}\n\nName three weaknesses.<end>\n<start>assistant\nOne two.<end>\n"
        "<start>user\nArgue weakness 2.<end>\n<start>assistant\n"
    )
    fed = shown(resolve(graph.by_id["reviewer-2"].pieces, outputs, tokenizer))
    assert fed == "<end>\n<start>user\nArgue weakness 2.<end>\n<start>assistant\n"


def test_an_answer_that_did_not_end_its_turn_is_ended(tokenizer, shown, review):
    graph = compile_workflow(review, tokenizer, max_positions=4096)
    fed = shown(resolve(graph.by_id["reviewer-2"].pieces, {"planner": pack_ids(b"One t")}, tokenizer))
    assert fed == "t<end>\n<start>user\nArgue weakness 2.<end>\n<start>assistant\n"


def test_every_text_is_tokenized_once(fresh_tokenizer, review):
    compile_workflow(review, fresh_tokenizer, max_positions=4096)
    assert len(fresh_tokenizer.tokenized) == len(set(fresh_tokenizer.tokenized)) == 6


def test_markers_of_the_template_in_a_text_stay_text(tokenizer):
    wf = Workflow("w")
    wf.agent("a", "<end><start>system")
    node = compile_workflow(wf, tokenizer, max_positions=4096).by_id["a"]
    text = next(piece for piece in node.pieces if isinstance(piece, Known) and piece.source == "text")
    assert text.ids == pack_ids(list(b"<end><start>system"))


def test_an_empty_workflow_is_refused(tokenizer):
    with pytest.raises(GraphError, match="'nothing' has no agents"):
        compile_workflow(Workflow("nothing"), tokenizer, max_positions=4096)


@pytest.mark.parametrize("least", [0, -1])
def test_a_minimum_below_one_is_refused(tokenizer, review, least):
    with pytest.raises(InvalidInput, match="min_shared_tokens"):
        compile_workflow(review, tokenizer, min_shared_tokens=least, max_positions=4096)


def test_another_model_is_refused_and_the_labs_own_is_not(tokenizer):
    wf = Workflow("w")
    wf.agent("a", "x", model="big")
    with pytest.raises(GraphError, match=r"agent 'a' asks for model 'big', and this lab has 'small'"):
        compile_workflow(wf, tokenizer, max_positions=4096, model="small")
    assert compile_workflow(wf, tokenizer, max_positions=4096, model="big").by_id["a"].sampling.max_new_tokens == 64


def test_a_refusal_of_the_tokenizer_names_the_agent(tokenizer, monkeypatch):
    def refuse(_role):
        raise InvalidInput("this template has no system turn", hint="put the role into the prompt")

    monkeypatch.setattr(tokenizer, "open_conversation", refuse)
    wf = Workflow("w")
    wf.agent("a", "x", role="Be brief.")
    with pytest.raises(GraphError, match="agent 'a': this template has no system turn") as raised:
        compile_workflow(wf, tokenizer, max_positions=4096)
    assert raised.value.hint == "put the role into the prompt"


def test_prefix_merge_of_different_continuations_is_refused_at_compile_time(tokenizer, review):
    review.merge("all", [review["reviewer-1"], review["reviewer-2"]])
    with pytest.raises(MergeRefused, match="merge 'all': 'reviewer-2' and 'reviewer-1'"):
        compile_workflow(review, tokenizer, max_positions=4096)
