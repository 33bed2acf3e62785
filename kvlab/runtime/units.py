"""What a run launches, and what it has come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from kvlab.compiler.graph import Graph, Node
from kvlab.cost.decide import Decision
from kvlab.cost.roads import Alternative
from kvlab.runtime.operations import Pending
from kvlab.runtime.prefetch import Prefetched
from kvlab.runtime.tool_calls import ToolCall
from kvlab.state.records import StateRecord

Flow = Literal["state", "text"]


@dataclass(slots=True)
class Unit:
    """Nodes that are launched together: one node, or siblings as one batch.

    ``place`` is its own in the order of the graph. ``ready_ns`` is when all that it waits for was there, ``passed_ns`` when
    the gate let it through. ``decision`` may be there before the launch, when siblings were divided into groups;
    ``passed`` says that the gate has let it through: where there was no room, it is launched again, and not by
    ``roads_without_room``.
    """

    nodes: tuple[Node, ...]
    action: str = ""
    worker: str = ""
    place: int = 0
    ready_ns: int = 0
    passed_ns: int = 0
    decision: Decision | None = None
    prefetched: Prefetched | None = None
    passed: bool = False
    roads_without_room: list[Alternative] = field(default_factory=list)
    pending: Pending | None = None
    text_answer: Any = None
    call: ToolCall | None = None
    tries: int = 0
    trouble: Exception | None = None
    because: str | None = None
    planned: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return ", ".join(node.id for node in self.nodes)

    @property
    def edges(self) -> list[str]:
        """Ids of its state edges."""
        return [edge_id(node.parent, node.id) for node in self.nodes]

    @property
    def stops(self) -> set[str]:
        """Breakpoints that it meets: its agents, its operator, its edges, and the states that they start from."""
        return {stop for node in self.nodes for stop in stops_of(node)}

    def forget_work(self) -> None:
        """It is over: nobody wants its answers any more, so Dask makes none of them again when a worker is lost."""
        self.pending, self.text_answer, self.prefetched = None, None, None


def edge_id(source: str | None, target: str) -> str:
    """How a state edge is called: ``planner→editor``."""
    return f"{source or ''}→{target}"


def stops_of(node: Node) -> tuple[str, ...]:
    """Breakpoints that a node meets: ``editor``, ``resume``; if it starts on a state, ``planner→``, ``planner→editor``."""
    from_state = (edge_id(node.parent, ""), edge_id(node.parent, node.id)) if node.parent is not None else ()
    return (node.id, str(node.kind), *from_state)


@dataclass(frozen=True, slots=True)
class PendingAction:
    """An action that waits at the gate, as a person sees it.

    Attributes
    ----------
    action, op, agents
        What it is.
    edge
        Id of its state edge; empty for a fresh start.
    decision
        How its edge would be decided now; None for a fresh start, or where no worker is up.
    """

    action: str
    op: str
    agents: tuple[str, ...]
    edge: str = ""
    decision: Decision | None = None

    def __str__(self) -> str:
        from kvlab.display.decision_text import pending_text

        return pending_text(self)

    def _repr_html_(self) -> str:
        from kvlab.display.decision_text import pending_html

        return pending_html(self)


@dataclass(slots=True)
class Progress:
    """What a run has come to so far; read by the run's handle, written by the conductor alone."""

    outputs: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    states: dict[str, StateRecord] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Node → why it did not run; it stands for the turn that it continues."""
    done_ns: dict[str, int] = field(default_factory=dict)
    status: str = "running"
    error: Exception | None = None


def units_of(graph: Graph, flow: Flow) -> list[Unit]:
    """What ``graph`` launches: in textflow every agent by itself, in stateflow siblings together."""
    if flow == "text":
        groups: list[tuple[str, ...]] = [
            (node.id,) for node in graph.nodes if node.sampling.max_new_tokens or node.tool is not None
        ]
    else:
        grouped = {name: group for group in graph.siblings for name in group}
        groups = list(dict.fromkeys(grouped.get(node.id, (node.id,)) for node in graph.nodes))
    return [Unit(tuple(graph.by_id[name] for name in group), place=place) for place, group in enumerate(groups)]
