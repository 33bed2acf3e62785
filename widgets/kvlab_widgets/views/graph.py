"""State graph: lanes are agents, x is layer. Shape is the operator, hue and dash of a state edge its decision."""

from __future__ import annotations

from typing import Any

from bokeh.models import CategoricalMarkerMapper, CDSView, FixedTicker

from kvlab_widgets.figures import Build, Panel

MARKERS = ("circle", "triangle", "diamond", "inverted_triangle")
FILLS, LINES = ("node", "background", "background"), ("background", "evicted", "corrected")
"""Token of a mark's fill and of its border: solid, hollow (evicted), approximate."""

SIZE = 13


def graph(build: Build, height: int) -> Panel:
    """The panel of the state graph."""
    made = build.figure("State graph", height, (0, 1), (-1, 1))
    made.grid.visible = False
    made.xaxis.visible = False
    made.yaxis.ticker = FixedTicker(ticks=[])
    made.yaxis.axis_line_color = None
    made.yaxis.major_tick_out = 0
    made.min_border_left = 84
    lanes = build.source("y0", "y1")
    strip = made.hstrip(y0="y0", y1="y1", source=lanes, level="underlay", line_color=None).glyph
    build.bind(strip, "fill_color", "lane")
    shapes = CategoricalMarkerMapper(factors=list(map(str, range(len(MARKERS)))), markers=list(MARKERS))
    hues = build.mapper()

    def planned_lines(view: CDSView, level: str) -> None:
        source = build.table("planned_lines", "x0", "y0", "x1", "y1", "cx0", "cx1")
        glyph = made.bezier(
            "x0", "y0", "x1", "y1", "cx0", "y0", "cx1", "y1", source=source, view=view, level=level
        ).glyph
        build.bind(glyph, "line_color", "planned")

    def plan(view: CDSView, level: str) -> None:
        source = build.table("plan", "x", "y", "mark")
        marker = {"field": "mark", "transform": shapes}
        glyph = made.scatter("x", "y", marker=marker, source=source, view=view, size=SIZE, level=level).glyph
        build.bind(glyph, "fill_color", "background")
        build.bind(glyph, "line_color", "planned")

    def texts(view: CDSView, level: str) -> None:
        source = build.table("data", "x0", "y0", "x1", "y1")
        glyph = made.segment("x0", "y0", "x1", "y1", source=source, view=view, line_width=1, level=level).glyph
        build.bind(glyph, "line_color", "data")
        build.fades.append(glyph)

    def edges(view: CDSView, level: str) -> None:
        source = build.table("edges", "x0", "y0", "x1", "y1", "cx0", "cx1", "how", "width", "dash")
        glyph = made.bezier(
            "x0", "y0", "x1", "y1", "cx0", "y0", "cx1", "y1", source=source, view=view, level=level,
            line_color={"field": "how", "transform": hues}, line_width="width", line_dash="dash",
        ).glyph  # fmt: skip
        build.fades.append(glyph)

    fills, lines = build.mapper(FILLS), build.mapper(LINES)

    def marks(view: CDSView, level: str) -> None:
        source = build.table("marks", "x", "y", "mark", "fill")
        glyph = made.scatter(
            "x", "y", marker={"field": "mark", "transform": shapes}, source=source, view=view, size=SIZE, level=level,
            fill_color={"field": "fill", "transform": fills}, line_color={"field": "fill", "transform": lines},
        ).glyph  # fmt: skip
        build.fades.append(glyph)

    build.layer("graph", "planned_lines", planned_lines, x="x1")
    build.layer("graph", "plan", plan, x="x")
    build.layer("graph", "data", texts, x="x1")
    build.layer("graph", "edges", edges, x="x1")
    build.layer("graph", "marks", marks, x="x")
    return build.panel(
        "graph", "State graph", [made], height, figure=made, lanes=lanes, **_above(build, made, hues, shapes)
    )


def _above(build: Build, made: Any, hues: Any, shapes: Any) -> dict[str, Any]:
    """What is drawn over the rest: ancestors, what is related to the selection, cursor, selection, labels."""
    path = build.source("x0", "y0", "x1", "y1", "cx0", "cx1")
    glyph = made.bezier(
        "x0", "y0", "x1", "y1", "cx0", "y0", "cx1", "y1", source=path, line_width=2.5, level="overlay"
    ).glyph
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
    labels = build.source("x", "y", "text", "dx", "align")
    glyph = build.text(
        made, labels, "ink", x_offset={"field": "dx"}, y_offset=-21, text_align={"field": "align"},
        text_baseline="middle", level="overlay",
        background_fill_alpha=0.9, padding=2,
    )  # fmt: skip
    build.bind(glyph, "background_fill_color", "background")
    return {"path": path, "related": related, "kin": kin, "ring": ring, "square": square, "labels": labels}
