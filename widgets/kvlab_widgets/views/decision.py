"""Decision: every alternative of one state edge with its predicted terms, what it came to, and where it breaks even."""

from __future__ import annotations

from bokeh.models import CustomJSTickFormatter, Span

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.look import DECISION_DASHES
from kvlab_widgets.rows import DECISIONS
from kvlab_widgets.views.timeline import SECONDS

CURVES = ("transfer", "recompute", "hybrid")
TOKENS = "return tick >= 1000 ? +(tick / 1000).toFixed(1) + 'k' : '' + +tick.toFixed(2)"


def decision(build: Build, chart: int, rows: int) -> Panel:
    """The panel of the decision; ``chart`` and ``rows`` are the heights of the chart and of the rows above it in px."""
    made = build.figure("Break-even: seconds against tokens", chart, (0, 1), (0, 1))
    made.xaxis.formatter = CustomJSTickFormatter(code=TOKENS)
    made.yaxis.formatter = CustomJSTickFormatter(code=SECONDS)
    made.yaxis.ticker.desired_num_ticks = 4
    made.xaxis.axis_label = "tokens that the worker lacks"
    curves = build.source("x", *CURVES)
    for name in CURVES:
        code = DECISIONS.index(name)
        dash = [] if name == "recompute" else DECISION_DASHES[code]
        glyph = made.line("x", name, source=curves, line_width=2, line_dash=dash).glyph
        build.bind(glyph, "line_color", name)
    ends, dots = build.source("x", "y", "text"), build.source("x", "y")
    build.text(made, ends, x_offset=5, text_baseline="middle")
    glyph = made.scatter("x", "y", source=dots, size=10, level="overlay", line_width=1.5).glyph
    build.bind(glyph, "fill_color", "accent")
    build.bind(glyph, "line_color", "background")
    even = Span(location=0, dimension="height", line_dash=[2, 3], visible=False)
    made.add_layout(even)
    build.bind(even, "line_color", "faint")
    body = build.div(height=rows)
    parts = {"figure": made, "curves": curves, "ends": ends, "dots": dots, "even": even, "rows": body}
    return build.panel("decision", "Decision", [body, made], chart + rows, **parts)
