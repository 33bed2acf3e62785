"""A compiled graph as text: one line a node, indented under the state it starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.display.look import SHAPES
from kvlab.display.quantities import count_text, counted, seconds_text

if TYPE_CHECKING:
    from kvlab.compiler.graph import Graph, Node


def graph_text(graph: Graph) -> str:
    """G_s for a terminal.

    ``●`` materialize, ``◆`` resume, ``▼`` merge, ``■`` tool; ``▲ n`` says that a state is forked n ways; ``┄`` is a state
    edge with its tokens, ``←`` lists the agents whose text is read; ``∥`` marks siblings that run as one batch; ``unless``
    tells when a turn is skipped.
    """
    children: dict[str | None, list[Node]] = {}
    for node in graph.nodes:
        children.setdefault(node.parent, []).append(node)
    edges = {(edge.source, edge.target): edge for edge in graph.state_edges}
    lost = {edge.target: edge.recompute_because for edge in graph.state_edges if edge.recompute_because}
    together = {name for group in graph.siblings if len(group) > 1 for name in group}
    counts = (len(graph.nodes), len(graph.state_edges), len(graph.data_edges))
    rows = ["{}: {} operators, {} state edges, {} data edges".format(graph.name, *counts)]

    def show(node: Node, lead: str, *, last: bool, root: bool) -> None:
        edge = edges.get((node.parent or "", node.id))
        joint = "" if root else f"{lead}{'└' if last else '├'}┄{count_text(edge.n_tokens) if edge else ''}┄ "
        read = f"  ← {', '.join(node.data_parents)}" if node.data_parents else ""
        mine = children.get(node.id, [])
        fork = f"  ▲ {len(mine)}" if len(mine) > 1 else ""
        batch = "  ∥" if node.id in together else ""
        again = f"  recomputed: {lost[node.id]}" if node.id in lost else ""
        fed = f"+{count_text(node.known_tokens)}"
        if node.tool is not None:
            fed = f"≤ {counted(node.tool.max_tokens, 'token')}, after {seconds_text(node.tool.pause_seconds)}"
        if node.sampling.max_new_tokens:
            fed += f", ≤ {count_text(node.sampling.max_new_tokens)} new"
        stop = f"  unless {node.unless.agent} says {node.unless.text!r}" if node.unless is not None else ""
        rows.append(f"{joint}{SHAPES[node.kind]} {node.id} ({fed}){fork}{batch}{read}{stop}{again}")
        below = "" if root else f"{lead}{' ' if last else '│'}     "
        for index, child in enumerate(mine):
            show(child, below or "  ", last=index == len(mine) - 1, root=False)

    for node in children.get(None, []):
        show(node, "", last=True, root=True)
    return "\n".join([*rows, *forecast_lines(graph), *(f"⚠ {warning}" for warning in graph.warnings)])


def forecast_lines(graph: Graph) -> list[str]:
    """T_agent = T_prefill + T_decode + Ω of all agents, in both flows: predicted, with answers at full length."""
    found = graph.forecast
    if found is None or not found.speaking:
        return []
    k = len(found.speaking)
    mean = sum(agent.text_prefill for agent in found.speaking) / k
    decode = sum(agent.decode for agent in found.speaking)
    prefill = sum(agent.state_prefill for agent in found.agents)
    text = f"k·T_prefill + Σ T_decode + Ω = {k} · {seconds_text(mean)} + {seconds_text(decode)}"
    state = f"Σ T_prefill + Σ T_decode + Ω = {seconds_text(prefill)} + {seconds_text(decode)}"
    spent = [sum(agent.overhead for agent in agents) for agents in (found.speaking, found.agents)]
    return [
        f"T_text ≈ {text} + {seconds_text(spent[0])} = {seconds_text(found.text_seconds)} of work (predicted)",
        f"T_state ≈ {state} + {seconds_text(spent[1])} = {seconds_text(found.state_seconds)} of work (predicted)",
    ]
