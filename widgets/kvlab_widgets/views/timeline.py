"""Timeline: what each worker computed, decoded and received, what it let go, and what workers handed to each other."""

from __future__ import annotations

from bokeh.models import CategoricalMarkerMapper, ColumnDataSource, CustomJSTickFormatter, FixedTicker

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.look import DECISION_TOKENS

SECONDS = (
    "return tick === 0 ? '0 s' : (Math.abs(tick) < 0.0995 ? +(tick * 1e3).toFixed(1) + ' ms' : +tick.toFixed(2) + ' s')"
)
BAR, THIN = 0.56, 0.1
"""Heights of a bar of work and of one of bytes that arrive, in rows."""

PALE = 0.45


def timeline(build: Build, height: int) -> Panel:
    """The panel of the timeline."""
    made = build.figure("Timeline", height, (0, 1), (-1, 1))
    made.ygrid.visible = False
    made.yaxis.ticker = FixedTicker(ticks=[])
    made.yaxis.axis_line_color, made.yaxis.major_tick_out, made.min_border_left = None, 0, 84
    made.xaxis.formatter = CustomJSTickFormatter(code=SECONDS)
    # Work that no decision led to is slate.
    hues = build.mapper([*DECISION_TOKENS[:-2], "node", "background"])

    def spans(source: ColumnDataSource, level: str) -> None:
        made.hbar(
            y="row", left="t0", right="t1", height=BAR, source=source, line_color=None, level=level,
            fill_color={"field": "how", "transform": hues},
        )  # fmt: skip

    def decodes(source: ColumnDataSource, level: str) -> None:
        glyph = made.hbar(
            y="row", left="t0", right="t1", height=BAR, source=source, line_color=None, level=level, fill_alpha=PALE
        ).glyph  # fmt: skip
        build.bind(glyph, "fill_color", "background")

    heads = CategoricalMarkerMapper(factors=["up", "down"], markers=["triangle", "inverted_triangle"])

    def moves(source: ColumnDataSource, level: str) -> None:
        hue = {"field": "how", "transform": hues}
        made.hbar(
            y="row", left="t0", right="t1", height=THIN, source=source, line_color=None, level=level,
            fill_color=hue,
        )  # fmt: skip
        made.segment(
            "t0",
            "from",
            "t1",
            "to",
            source=source,
            level=level,
            line_color=hue,
            line_alpha=0.7,
            line_dash=[8, 3],
        )
        made.scatter(
            "t1", "to", marker={"field": "head", "transform": heads}, size=6, source=source, level=level,
            line_color=None, fill_color=hue,
        )  # fmt: skip

    def drops(source: ColumnDataSource, level: str) -> None:
        glyph = made.scatter("t", "row", marker="x", size=6, source=source, level=level).glyph
        build.bind(glyph, "line_color", "muted")

    build.layer("timeline", "spans", ("row", "t0", "t1", "how"), spans, x="t1")
    build.layer("timeline", "decodes", ("row", "t0", "t1"), decodes, x="t1")
    build.layer("timeline", "moves", ("row", "t0", "t1", "from", "to", "how", "head"), moves, x="t1")
    build.layer("timeline", "drops", ("row", "t"), drops, x="t")
    running = build.source("row", "t0", "t1")
    glyph = made.hbar(y="row", left="t0", right="t1", height=BAR, source=running, level="overlay", line_width=1).glyph
    build.bind(glyph, "fill_color", "lane")
    build.bind(glyph, "line_color", "faint")
    names = build.source("x", "y", "text")
    # A name may lie on several shades: it brings its own ground.
    glyph = build.text(
        made, names, "ink", x_offset=5, text_baseline="middle", level="overlay", background_fill_alpha=0.82, padding=2,
    )  # fmt: skip
    build.bind(glyph, "background_fill_color", "background")
    cursor = build.cursor(made)
    return build.panel("timeline", "Timeline", [made], height, figure=made, running=running, names=names, cursor=cursor)
