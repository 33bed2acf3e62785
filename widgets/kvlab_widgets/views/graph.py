"""State graph: lanes are agents, x is layer or time. Shape is the operator, hue and dash of a state edge its decision."""

from __future__ import annotations

from typing import Any

from bokeh.models import CategoricalMarkerMapper, ColumnDataSource, CustomJSTickFormatter, FixedTicker

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.views.overview import HEIGHT, overview
from kvlab_widgets.views.timeline import SECONDS

MARKERS = ("circle", "triangle", "diamond", "inverted_triangle", "square")
FILLS, LINES = ("node", "background", "background"), ("background", "evicted", "corrected")
"""Token of a mark's fill and of its border: solid, hollow (evicted), approximate."""

SIZE = 13
SMALL = 8
"""A mark of what is planned, in px: small and full, where one of a state that was evicted is large and hollow."""

KEY = 18
"""Height of the legend's line in px."""

LEFT = 84
"""Border in px where the lanes' names stand."""


def graph(build: Build, height: int) -> Panel:
    """The panel of the state graph."""
    made = build.figure("State graph", height - HEIGHT - KEY, (0, 1), (-1, 1))
    made.grid.visible = False
    made.xaxis.visible = False  # until x is time
    made.xaxis.formatter = CustomJSTickFormatter(code=SECONDS)
    made.yaxis.ticker = FixedTicker(ticks=[])
    made.yaxis.axis_line_color = None
    made.yaxis.major_tick_out = 0
    made.min_border_left = LEFT
    lanes = build.source("y0", "y1")
    strip = made.hstrip(y0="y0", y1="y1", source=lanes, level="underlay", line_color=None).glyph
    build.bind(strip, "fill_color", "lane")
    shapes = CategoricalMarkerMapper(factors=list(map(str, range(len(MARKERS)))), markers=list(MARKERS))
    hues = build.mapper()

    def planned_lines(source: ColumnDataSource, level: str) -> None:
        glyph = made.bezier("u0", "y0", "u1", "y1", "c0", "y0", "c1", "y1", source=source, level=level).glyph
        build.bind(glyph, "line_color", "planned")

    def plan(source: ColumnDataSource, level: str) -> None:
        marker = {"field": "mark", "transform": shapes}
        glyph = made.scatter("u", "y", marker=marker, source=source, size=SMALL, level=level).glyph
        glyph.line_color = None
        build.bind(glyph, "fill_color", "faint")
        build.fades.append(glyph)

    def texts(source: ColumnDataSource, level: str) -> None:
        glyph = made.bezier("u0", "y0", "u1", "y1", "c0", "y0", "c1", "y1", source=source, level=level).glyph
        build.bind(glyph, "line_color", "data")
        build.fades.append(glyph)

    def edges(source: ColumnDataSource, level: str) -> None:
        glyph = made.bezier(
            "u0", "y0", "u1", "y1", "c0", "y0", "c1", "y1", source=source, level=level,
            line_color={"field": "how", "transform": hues}, line_width="width", line_dash="dash",
        ).glyph  # fmt: skip
        build.fades.append(glyph)

    fills, lines = build.mapper(FILLS), build.mapper(LINES)

    def marks(source: ColumnDataSource, level: str) -> None:
        glyph = made.scatter(
            "u", "y", marker={"field": "mark", "transform": shapes}, source=source, size=SIZE, level=level,
            fill_color={"field": "fill", "transform": fills}, line_color={"field": "fill", "transform": lines},
        ).glyph  # fmt: skip
        build.fades.append(glyph)

    build.layer("graph", "planned_lines", ("u0", "y0", "u1", "y1", "c0", "c1"), planned_lines, x="u1")
    build.layer("graph", "plan", ("u", "y", "mark"), plan, x="u")
    build.layer("graph", "data", ("u0", "y0", "u1", "y1", "c0", "c1"), texts, x="u1")
    build.layer("graph", "edges", ("u0", "y0", "u1", "y1", "c0", "c1", "how", "width", "dash"), edges, x="u1")
    build.layer("graph", "marks", ("u", "y", "mark", "fill"), marks, x="u")
    strip, key = overview(build, LEFT), build.div()
    parts = {"key": key, "lanes": lanes, **strip, **_groups(build, made, hues), **_above(build, made, hues, shapes)}
    return build.panel("graph", "State graph", [key, made, strip["strip"]], height, figure=made, **parts)


def _groups(build: Build, made: Any, hues: Any) -> dict[str, Any]:
    """Groups of states: how many, and a bar of how they came."""
    bars, numbers = build.source("left", "right", "top", "bottom", "how"), build.source("x", "y", "text")
    made.quad(
        "left", "right", "top", "bottom", source=bars, line_color=None, fill_color={"field": "how", "transform": hues}
    )
    build.text(made, numbers, "ink", text_baseline="middle", y_offset=-4)
    return {"bars": bars, "numbers": numbers}


def _above(build: Build, made: Any, hues: Any, shapes: Any) -> dict[str, Any]:
    """What is drawn over the rest: ancestors, what is related to the selection, cursor, selection, labels.

    The way to the selection lies in a band, so that its lines keep the hues and dashes of their decisions.
    """
    path = build.source("x0", "y0", "x1", "y1", "cx0", "cx1")
    glyph = made.bezier(
        "x0", "y0", "x1", "y1", "cx0", "y0", "cx1", "y1", source=path, line_width=8, line_alpha=0.14,
        level="overlay",
    ).glyph  # fmt: skip
    build.bind(glyph, "line_color", "accent")
    related = build.source("x0", "y0", "x1", "y1", "cx0", "cx1", "how", "width", "dash")
    made.bezier(
        "x0", "y0", "x1", "y1", "cx0", "y0", "cx1", "y1", source=related, level="overlay", line_width="width",
        line_color={"field": "how", "transform": hues}, line_dash="dash",
    )  # fmt: skip
    kin = build.source("x", "y", "mark")
    marker = {"field": "mark", "transform": shapes}
    glyph = made.scatter("x", "y", marker=marker, source=kin, size=SIZE, level="overlay").glyph
    build.bind(glyph, "fill_color", "node")
    build.bind(glyph, "line_color", "background")
    ring, square = build.source("x", "y"), build.source("x", "y")
    for source, shape, size in ((ring, "circle", SIZE + 10), (square, "square", SIZE + 11)):
        glyph = made.scatter(
            "x", "y", source=source, marker=shape, size=size, fill_color=None, line_width=2, level="overlay"
        ).glyph
        build.bind(glyph, "line_color", "accent")
    counts = build.source("x", "y", "text")
    glyph = build.text(made, counts, "muted", y_offset=12, text_align="center", text_baseline="middle", level="overlay")
    glyph.text_font_size = "9px"
    labels = build.source("x", "y", "text", "dx", "dy")
    glyph = build.text(
        made, labels, "ink", x_offset={"field": "dx"}, y_offset={"field": "dy"}, text_baseline="middle", level="overlay",
        background_fill_alpha=0.9, padding=2,
    )  # fmt: skip
    build.bind(glyph, "background_fill_color", "background")
    return {
        "path": path, "related": related, "kin": kin, "ring": ring, "square": square, "counts": counts, "labels": labels,
    }  # fmt: skip
