"""Pictures of a compiled graph, and of what a run made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.display.drawing import graph_drawing, run_drawing
from kvlab.display.picture import svg
from kvlab.display.worlds import Shown, world_of
from kvlab.store.graph_document import graph_document

if TYPE_CHECKING:
    from kvlab.compiler.graph import Graph


def graph_svg(graph: Graph) -> str:
    """G_s: lanes are agents, x is layer; ● materialize ▲ fork ◆ resume ▼ merge; data solid, state dashed."""
    return svg(graph_drawing(graph_document(graph)), decisions=False)


def graph_html(graph: Graph) -> str:
    """The same, for a notebook's cell."""
    return f'<div class="kv-graph">{graph_svg(graph)}</div>'


def run_svg(run: Shown) -> str:
    """What a run did: colour and dash of a state edge are its decision, its width the bytes that were to move."""
    return svg(run_drawing(world_of(run)), decisions=True)
