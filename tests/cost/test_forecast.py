"""A forecast prices each agent by the curves of its own model."""

from __future__ import annotations

from dataclasses import replace

from kvlab.compiler.graph import Graph, Known, Node
from kvlab.cost.forecast import forecast
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids

OWN = CostModel(PrefillCurve(1.0, 0.5, 0.0, 1), DecodeCurve(2.0), Link(0.0, 1.0), 0.0, 0.25)
OTHER = replace(OWN, prefill=PrefillCurve(3.0, 2.0, 0.0, 1), decode=DecodeCurve(7.0))


def agent(name: str, model: str) -> Node:
    pieces = (Known(pack_ids(range(10))),)
    return Node(name, "resume", name, None, pieces, pieces, Sampling(4, branch=name), model=model)


def test_two_models_have_two_prices() -> None:
    graph = Graph("two", (agent("mine", ""), agent("theirs", "other")), (), ())
    mine, theirs = forecast(graph, {"": OWN, "other": OTHER}).agents
    assert (mine.text_prefill, mine.state_prefill, mine.decode, mine.overhead) == (6.0, 6.0, 6.0, 0.25)
    assert (theirs.text_prefill, theirs.state_prefill, theirs.decode, theirs.overhead) == (23.0, 23.0, 21.0, 0.25)
