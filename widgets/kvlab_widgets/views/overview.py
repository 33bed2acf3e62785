"""Overview: all states of a run over the graph's x, as a strip of bars with the visible window and the cursor on it."""

from __future__ import annotations

from typing import Any

from kvlab_widgets.figures import Build

HEIGHT = 30


def overview(build: Build, left: int) -> dict[str, Any]:
    """Parts of the strip; ``left`` is the border in px that aligns it with the figure above."""
    made = build.figure("All states over x, and what of them is shown", HEIGHT, (0, 1), (0, 1.08))
    made.grid.visible = made.axis.visible = False
    made.min_border_left, made.min_border_top, made.min_border_bottom = left, 3, 3
    density = build.source("left", "right", "top")
    glyph = made.quad("left", "right", "top", 0, source=density, line_color=None).glyph
    build.bind(glyph, "fill_color", "faint")
    pane = build.source("left", "right")
    glyph = made.quad("left", "right", 1.06, 0, source=pane, level="overlay", fill_alpha=0.08, line_width=1.5).glyph
    build.bind(glyph, "fill_color", "accent")
    build.bind(glyph, "line_color", "accent")
    return {"strip": made, "density": density, "pane": pane, "now": build.cursor(made)}
