"""What a compiled graph will cost, before it runs: T_agent = T_prefill + T_decode + Ω for every agent, in both flows. Pure.

In textflow each of k agents prefills its whole conversation: T_text ≈ k·T_prefill + Σ T_decode. In stateflow it feeds only
what is new on the state it starts from, and shared prefixes are prefilled once. Lengths count answers at full length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvlab.compiler.graph import EndOfTurn, Graph, Known, Node, OutputOf, Piece, RawOutputOf, flat
from kvlab.cost.model import CostModel
from kvlab.state.tokens import n_ids

CLOSING_TOKENS = 2
"""About so many tokens end a turn in a chat template, and are not worth a tokenizer here."""


@dataclass(frozen=True, slots=True)
class AgentCost:
    """One operator: tokens of its whole conversation, tokens it feeds, and predicted seconds."""

    node: str
    n_path: int
    n_fed: int
    text_prefill: float
    state_prefill: float
    decode: float
    overhead: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The whole graph; predicted seconds of work, whichever workers do it and however they overlap."""

    agents: tuple[AgentCost, ...]

    @property
    def speaking(self) -> tuple[AgentCost, ...]:
        """Those that generate: the only ones textflow has."""
        return tuple(agent for agent in self.agents if agent.decode)

    @property
    def text_seconds(self) -> float:
        """T_text."""
        return sum(agent.text_prefill + agent.decode + agent.overhead for agent in self.speaking)

    @property
    def state_seconds(self) -> float:
        """T_state, with every state edge in place."""
        return sum(agent.state_prefill + agent.decode + agent.overhead for agent in self.agents)


def forecast(graph: Graph, costs: Mapping[str, CostModel]) -> Forecast:
    """Predicted cost of each operator of ``graph`` with all cores of the machine that ``costs`` were measured on.

    ``costs`` are by the names of :attr:`~kvlab.compiler.graph.Node.model`, the lab's own model's without a name.
    """
    limits = {
        node.id: node.sampling.max_new_tokens if node.tool is None else node.tool.max_tokens for node in graph.nodes
    }
    return Forecast(tuple(_agent(node, limits, costs[node.model]) for node in graph.nodes if node.tool is None))


def _agent(node: Node, limits: Mapping[str, int], cost: CostModel) -> AgentCost:
    n_path, n_fed = _at_most(node.full_pieces, limits), _at_most(node.pieces, limits)
    steps = max(0, node.sampling.max_new_tokens - 1)
    return AgentCost(
        node.id,
        n_path,
        n_fed,
        cost.prefill.seconds(n_path),
        cost.prefill.seconds(n_fed, max(0, n_path - n_fed)),
        cost.decode.seconds(steps, 1, n_path),
        cost.task_seconds,
    )


def _at_most(pieces: Iterable[Piece], limits: Mapping[str, int]) -> int:
    return sum(_tokens(piece, limits) for piece in flat(pieces))


def _tokens(piece: Known | OutputOf | RawOutputOf | EndOfTurn, limits: Mapping[str, int]) -> int:
    if isinstance(piece, Known):
        return n_ids(piece.ids)
    if isinstance(piece, EndOfTurn):
        return CLOSING_TOKENS
    limit = limits.get(piece.agent, 0)
    return limit if isinstance(piece, OutputOf) else max(0, limit - 1) if isinstance(piece, RawOutputOf) else 0
