"""G_s as plain JSON: what ``run.started`` carries, so that a saved run can be drawn without its workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlab.compiler.graph import Graph


def graph_document(graph: Graph) -> dict[str, Any]:
    """The shape of ``graph``: nodes, edges, sibling groups and warnings, without token ids."""
    return {
        "name": graph.name,
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind,
                "lane": node.lane,
                "parent": node.parent,
                "known_tokens": node.known_tokens,
                "max_new_tokens": node.sampling.max_new_tokens,
                "model": node.model or None,
                "namespace": node.namespace or None,
                "tool": node.tool.name if node.tool is not None else None,
                "unless": [node.unless.agent, node.unless.text] if node.unless is not None else None,
            }
            for node in graph.nodes
        ],
        "data_edges": [{"source": edge.source, "target": edge.target} for edge in graph.data_edges],
        "state_edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "n_tokens": edge.n_tokens,
                "recompute_because": edge.recompute_because,
            }
            for edge in graph.state_edges
        ],
        "siblings": [list(group) for group in graph.siblings],
        "warnings": list(graph.warnings),
    }
