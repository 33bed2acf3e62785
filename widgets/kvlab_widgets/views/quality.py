"""Decision quality: how many edges were decided best, what was reused, and predicted against actual seconds of every edge."""

from __future__ import annotations

from bokeh.models import CategoricalMarkerMapper, ColumnDataSource, CustomJSTickFormatter, FixedTicker

from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.views.timeline import SECONDS

CAP = 600


def quality(build: Build, height: int, note: int = 116) -> Panel:
    """The panel of predicted against actual."""
    made = build.figure("Predicted against actual seconds", height - note, (0.001, 10), (0.001, 10), log=True)
    for axis in (made.xaxis, made.yaxis):
        axis.formatter = CustomJSTickFormatter(code=SECONDS)
        axis.ticker = FixedTicker(ticks=[10.0**power for power in range(-5, 5)])
    made.xaxis.axis_label, made.yaxis.axis_label = "predicted", "actual"
    line = made.line([1e-6, 1e6], [1e-6, 1e6], line_width=1).glyph
    build.bind(line, "line_color", "faint")
    hues = build.mapper()
    shapes = CategoricalMarkerMapper(factors=["1", "0"], markers=["circle", "x"])

    def dots(source: ColumnDataSource, level: str) -> None:
        made.scatter(
            "predicted", "seconds", marker={"field": "mark", "transform": shapes}, source=source, level=level,
            size=7, fill_alpha=0.75, fill_color={"field": "how", "transform": hues},
            line_color={"field": "how", "transform": hues},
        )  # fmt: skip

    build.layer("quality", "actuals", ("predicted", "seconds", "how", "mark"), dots, cap=CAP)
    told = build.div(height=note)
    return build.panel("quality", "Decision quality", [told, made], height, figure=made, told=told)
