"""Memory: K/V on each worker at the cursor, and on all of them over time."""

from __future__ import annotations

from bokeh.models import BoxAnnotation, CustomJSTickFormatter, FixedTicker

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.rows import COMPUTED, MAPPED, RECEIVED
from kvlab_widgets.views.timeline import SECONDS

CATEGORIES = (COMPUTED, RECEIVED, MAPPED)
BYTES = (
    "const u = [[2**30,'GiB'],[2**20,'MiB'],[2**10,'KiB']].find(u => tick >= u[0]); "
    "return u ? +(tick / u[0]).toFixed(1) + ' ' + u[1] : tick + ''"
)


def memory(build: Build, bars_height: int, height: int) -> Panel:
    """The panel of memory: bars of the workers above the occupancy over time."""
    bars = build.figure("K/V on each worker", bars_height, (0, 1), (-1, 1))
    bars.ygrid.visible = False
    bars.yaxis.ticker = FixedTicker(ticks=[])
    bars.yaxis.axis_line_color, bars.yaxis.major_tick_out = None, 0
    bars.xaxis.formatter = CustomJSTickFormatter(code=BYTES)
    bars.xaxis.ticker = FixedTicker(ticks=[])
    bars.min_border_left = 62
    held = build.source("y", *CATEGORIES)
    for renderer, name in zip(
        bars.hbar_stack(list(CATEGORIES), y="y", height=0.56, source=held, line_color=None), CATEGORIES, strict=True
    ):
        build.bind(renderer.glyph, "fill_color", name)
    measured = build.source("x", "y0", "y1")
    glyph = bars.segment("x", "y0", "x", "y1", source=measured, line_width=2, level="overlay").glyph
    build.bind(glyph, "line_color", "accent")

    total = build.figure("K/V on all workers over time", height, (0, 1), (0, 1))
    total.xgrid.visible = False
    total.min_border_left = 62
    total.xaxis.formatter, total.yaxis.formatter = (
        CustomJSTickFormatter(code=SECONDS),
        CustomJSTickFormatter(code=BYTES),
    )
    total.yaxis.ticker = FixedTicker(ticks=[])
    over = build.source("t", *(f"{name}{end}" for name in CATEGORIES for end in ("0", "1")))
    over.data = {column: [0.0, 0.0] for column in over.data}  # Bokeh 3.9 never ends to draw a step area without points
    for name in CATEGORIES:
        glyph = total.varea_step(x="t", y1=f"{name}0", y2=f"{name}1", step_mode="after", source=over).glyph
        build.bind(glyph, "fill_color", name)
    # What comes after the cursor is covered: cutting the areas there would draw all of them anew in each step.
    veil = BoxAnnotation(left=0, fill_alpha=1, line_color=None, level="overlay")
    total.add_layout(veil)
    build.bind(veil, "fill_color", "background")
    parts = {
        "bars": bars,
        "held": held,
        "measured": measured,
        "total": total,
        "over": over,
        "veil": veil,
        "cursor": build.cursor(total),
    }
    return build.panel("memory", "Memory", [bars, total], bars_height + height, **parts)
