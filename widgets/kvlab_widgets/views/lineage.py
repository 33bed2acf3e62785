"""Lineage: the states that a state was made from, width is tokens; and the state's card."""

from __future__ import annotations

from bokeh.models import CustomJSTickFormatter

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.views.decision import TOKENS


def lineage(build: Build, chart: int, card: int) -> Panel:
    """The panel of the lineage; ``chart`` and ``card`` are heights in px."""
    made = build.figure("Lineage", chart, (0, 1), (-1, 1))
    made.yaxis.visible = False
    made.ygrid.visible = False
    made.xaxis.formatter = CustomJSTickFormatter(code=TOKENS)
    made.xaxis.axis_label = "tokens from the root"
    made.xaxis.ticker.desired_num_ticks = 5
    bars = build.source("y", "left", "right", "of")
    hues = build.mapper(["mapped", "node"])
    made.hbar(
        y="y", left="left", right="right", height=0.6, source=bars, line_color=None,
        fill_color={"field": "of", "transform": hues},
    )  # fmt: skip
    names = build.source("x", "y", "text")
    build.text(made, names, x_offset=6, text_baseline="middle")
    body = build.div(height=card)
    parts = {"figure": made, "bars": bars, "names": names, "card": body}
    return build.panel("lineage", "Lineage", [body, made], chart + card, **parts)
