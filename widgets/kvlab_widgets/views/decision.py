"""Decision: every alternative of one state edge with its predicted terms, what it came to, where it breaks even, what if."""

from __future__ import annotations

from bokeh.models import CustomJSTickFormatter, Span

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.look import DECISION_DASHES, DECISION_TOKENS
from kvlab_widgets.rows import DECISIONS
from kvlab_widgets.views.timeline import SECONDS

CURVES = ("in place", "map", "transfer", "recompute", "hybrid")
TOKENS = "return tick >= 1000 ? +(tick / 1000).toFixed(1) + 'k' : '' + +tick.toFixed(2)"
RATE = """
const rate = 10 ** tick, power = Math.max(0, Math.min(3, Math.floor(Math.log2(rate) / 10)))
const value = rate / 1024 ** power
return (value < 10 ? +value.toFixed(1) : value.toFixed(0)) + [' B/s', ' KiB/s', ' MiB/s', ' GiB/s'][power]
"""
"""A tick of the axis of bandwidth, which is the decimal logarithm of bytes per second."""

SLIDERS = 62
PALE = ("in-place", "map")
"""Colours of lines that are too pale for words."""


def decision(build: Build, chart: int, rows: int) -> Panel:
    """The panel of the decision; ``chart`` and ``rows`` are the heights of the chart and of the rows above it in px.

    Between the two are the sliders of what-if, and what the chart is drawn against.
    """
    made = build.figure("Break-even: seconds of every road", chart, (0, 1), (0, 1))
    formatters = {"tokens": CustomJSTickFormatter(code=TOKENS), "bandwidth": CustomJSTickFormatter(code=RATE)}
    made.xaxis.formatter = formatters["tokens"]
    made.yaxis.formatter = CustomJSTickFormatter(code=SECONDS)
    made.xaxis.ticker.desired_num_ticks = made.yaxis.ticker.desired_num_ticks = 3
    curves = build.source("x", *CURVES)
    for name in CURVES:
        code = DECISIONS.index(name)
        dash = [] if name == "recompute" else DECISION_DASHES[code]
        glyph = made.line("x", name, source=curves, line_width=2, line_dash=dash).glyph
        build.bind(glyph, "line_color", DECISION_TOKENS[code])
    ends, dots = build.source("x", "y", "text", "how"), build.source("x", "y")
    tones = ["muted" if token in PALE else token for token in DECISION_TOKENS]
    hue = {"field": "how", "transform": build.mapper(tones)}
    build.text(made, ends, None, text_color=hue, x_offset=5, text_baseline="middle")
    glyph = made.scatter("x", "y", source=dots, size=10, level="overlay", line_width=1.5).glyph
    build.bind(glyph, "fill_color", "accent")
    build.bind(glyph, "line_color", "background")
    even = Span(location=0, dimension="height", line_dash=[2, 3], visible=False)
    made.add_layout(even)
    build.bind(even, "line_color", "faint")
    body, sliders = build.div(height=rows), build.div(height=SLIDERS)
    parts = {
        "figure": made, "curves": curves, "ends": ends, "dots": dots, "even": even, "rows": body, "sliders": sliders,
        "formatters": formatters, "names": list(CURVES),
    }  # fmt: skip
    return build.panel("decision", "Decision", [body, sliders, made], chart + rows + SLIDERS, **parts)
