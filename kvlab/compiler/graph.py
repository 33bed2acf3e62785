"""G_s = (V, E_d, E_s): what will run, what text flows (data edges), what state flows (state edges)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kvlab.state.identity import Sampling
from kvlab.state.tokens import n_ids

if TYPE_CHECKING:
    from kvlab.cost.forecast import Forecast

NodeKind = Literal["materialize", "resume", "merge", "tool"]


@dataclass(frozen=True, slots=True)
class Known:
    """Token ids known before the run, packed. ``source`` names what they are: a context, ``"text"``, ``"template"``."""

    ids: bytes
    source: str = "template"


@dataclass(frozen=True, slots=True)
class OutputOf:
    """The generated ids of an agent, without control tokens; known only once it has run."""

    agent: str


@dataclass(frozen=True, slots=True)
class RawOutputOf:
    """All generated ids of an agent but the last, as its own state holds them: control tokens included."""

    agent: str


@dataclass(frozen=True, slots=True)
class EndOfTurn:
    """Closes ``agent``'s answer: its unfed last token, then what of the template's end of turn it did not say."""

    agent: str


@dataclass(frozen=True, slots=True)
class TurnOf:
    """All that the turn of ``agent`` put into its conversation, its answer but for the last id included.

    Stands where that turn may be skipped: then it is nothing.
    """

    agent: str
    pieces: tuple[Piece, ...]


Piece = Known | OutputOf | RawOutputOf | EndOfTurn | TurnOf
"""The ids a piece stands for are given by :func:`kvlab.compiler.resolve.resolve`."""


def flat(pieces: Iterable[Piece]) -> Iterator[Known | OutputOf | RawOutputOf | EndOfTurn]:
    """``pieces`` as if no turn were skipped."""
    for piece in pieces:
        if isinstance(piece, TurnOf):
            yield from flat(piece.pieces)
        else:
            yield piece


@dataclass(frozen=True, slots=True)
class Unless:
    """A node is skipped if what ``agent`` said contains ``text``. It then stands for ``instead``, which it continues."""

    agent: str
    text: str
    instead: str


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool does: see :class:`kvlab.workflow.definitions.ToolDefinition`. ``given`` are texts, or whose text."""

    call: str | Callable[..., str]
    given: tuple[str | OutputOf, ...]
    pause_seconds: float
    hold_seconds: float
    max_tokens: int

    @property
    def name(self) -> str:
        """Of what is called."""
        return self.call if isinstance(self.call, str) else getattr(self.call, "__name__", "a function")


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: Op_s = (I, O, S_in, S_out, f, P, σ).

    Attributes
    ----------
    id
        Unique in the graph: the agent's name, or ``"context:paper"`` style names for materialized prefixes.
    kind
        ``materialize`` prefills a shared prefix, ``resume`` is an agent's turn, ``merge`` makes one conversation of
        branches: a summary is a turn like an agent's; a prefix merge feeds no pieces, draws no tokens
        (``sampling.max_new_tokens`` 0), and its state is its parent's, unfed token included. ``tool`` calls a function:
        it has neither pieces nor a state.
    lane
        The agent (or context) whose lane it is drawn in.
    parent
        Id of the node whose state it starts from, or None to start from the root.
    pieces
        What it feeds *on top of* the parent's state.
    full_pieces
        What the whole path says, from the root: what textflow prefills.
    data_parents
        Ids of nodes whose generated text its own turn reads, also where that text lies in a shared prefix.
    unless
        When it is skipped: then its state, its output and its text are those of the turn that it continues.
    tool
        What a tool calls.
    model
        Name of the model that it is for; empty for the lab's own.
    namespace
        Of its state, within that of the run; empty for the run's own.
    """

    id: str
    kind: NodeKind
    lane: str
    parent: str | None
    pieces: tuple[Piece, ...]
    full_pieces: tuple[Piece, ...]
    sampling: Sampling
    data_parents: tuple[str, ...] = ()
    unless: Unless | None = None
    tool: Call | None = None
    model: str = ""
    namespace: str = ""

    @property
    def known_tokens(self) -> int:
        """Tokens it will feed, as far as they are known before the run."""
        return sum(n_ids(piece.ids) for piece in self.pieces if isinstance(piece, Known))

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Ids of all nodes that must have run before this one."""
        return tuple(
            dict.fromkeys(([self.parent] if self.parent else []) + [*self.data_parents, *self._condition_parents])
        )

    @property
    def text_parents(self) -> tuple[str, ...]:
        """Ids of all nodes whose output is somewhere in its path: what textflow, which has no states, waits for."""
        said = [piece.agent for piece in self.full_pieces if not isinstance(piece, Known)]
        return tuple(dict.fromkeys([*said, *self.data_parents, *self._condition_parents]))

    @property
    def _condition_parents(self) -> tuple[str, ...]:
        return (self.unless.agent,) if self.unless is not None else ()


@dataclass(frozen=True, slots=True)
class DataEdge:
    """Text of ``source`` enters the prompt of ``target``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class StateEdge:
    """State of ``source`` is what ``target`` starts from. ``recompute_because`` is set when it cannot be used as it is.

    ``n_tokens`` counts the tokens of that state as far as they are known before the run: at most so many, with every
    agent generating all of its ``max_new_tokens``. Where ``recompute_because`` is set, it counts what is lost.
    ``fields`` are those of M and Θ in which the two models differ, where they are not one, and ``namespace`` where that
    differs.
    """

    source: str
    target: str
    n_tokens: int
    recompute_because: str | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """A compiled workflow. Nodes are in an order in which they can run."""

    name: str
    nodes: tuple[Node, ...]
    data_edges: tuple[DataEdge, ...]
    state_edges: tuple[StateEdge, ...]
    siblings: tuple[tuple[str, ...], ...] = ()
    """Groups of nodes with one parent that become ready together: one task when placed on one worker."""
    warnings: tuple[str, ...] = ()
    forecast: Forecast | None = field(default=None, repr=False, compare=False)
    """What it will cost on a calibrated machine; the compiler itself knows no machine."""
    by_id: dict[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {node.id: node for node in self.nodes})

    def _repr_html_(self) -> str:
        from kvlab.display.graph_picture import graph_html

        return graph_html(self)

    def __str__(self) -> str:
        from kvlab.display.graph_text import graph_text

        return graph_text(self)
