"""Figures, tables and panels of an inspector, made so that one client module can drive them.

Everything that a theme changes is bound to a token; everything that a cursor changes is a layer: a renderer for what is
old, redrawn seldom, and a twin on the overlay for what was born since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bokeh.models import (
    Column,
    ColumnDataSource,
    Div,
    InlineStyleSheet,
    LinearColorMapper,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from kvlab_widgets.look import DECISION_TOKENS, FONT, style, theme

LIGHT = theme(0)
Draw = Callable[[ColumnDataSource, str], Any]


@dataclass(slots=True)
class Panel:
    """One view: a head with title and legend, a body, and a native table that can stand in for it.

    ``parts`` are the models that the view's half in the browser uses, by name.
    """

    name: str
    title: str
    body: list[Any]
    parts: dict[str, Any]
    head: Any = None
    table: Any = None

    def column(self, **layout: Any) -> Any:
        """Head, body and table below each other."""
        return Column(self.head, *self.body, self.table, margin=0, **layout)


@dataclass(slots=True)
class Build:
    """What the parts of one inspector share while it is put together.

    Attributes
    ----------
    layers
        What the cursor shows and hides.
    binds
        (model, property, token or tokens): what a theme sets.
    fades
        Glyphs that step back while something is selected.
    """

    large: bool
    layers: list[dict[str, Any]] = field(default_factory=list)
    binds: list[list[Any]] = field(default_factory=list)
    fades: list[Any] = field(default_factory=list)
    sheet: Any = field(default_factory=lambda: InlineStyleSheet(css=style("parts")))

    def source(self, *columns: str) -> Any:
        """An empty source that only the browser fills."""
        return ColumnDataSource({name: [] for name in columns}, syncable=False)

    def bind(self, model: Any, name: str, token: str | Sequence[str]) -> None:
        """Let the theme set property ``name`` of ``model``."""
        self.binds.append([model, name, token if isinstance(token, str) else list(token)])
        setattr(model, name, LIGHT[token] if isinstance(token, str) else [LIGHT[one] for one in token])

    def mapper(self, tokens: Sequence[str] = DECISION_TOKENS) -> Any:
        """Code → colour of ``tokens``."""
        mapper = LinearColorMapper(palette=[LIGHT[token] for token in tokens], low=-0.5, high=len(tokens) - 0.5)
        self.bind(mapper, "palette", tokens)
        return mapper

    def layer(
        self, view: str, table: str, columns: Sequence[str], draw: Draw, *, x: str | None = None, cap: int | None = None
    ) -> None:
        """Rows of ``table`` up to the cursor, drawn by ``draw(source, level)``.

        Both renderers have a source of their own that holds only what they show: Bokeh looks through all rows of a source,
        shown or not, whenever something of it changes.

        Parameters
        ----------
        columns
            Of the table, that glyphs use.
        x
            Column that a page of the window cuts by.
        cap
            At most so many rows, the newest.
        """
        base, fresh = self.source(*columns), self.source(*columns)
        draw(base, "glyph")
        draw(fresh, "overlay")
        self.layers.append({"view": view, "table": table, "x": x, "cap": cap, "base": base, "fresh": fresh})

    def figure(self, title: str, height: int, x: tuple[float, float], y: tuple[float, float], **more: Any) -> Any:
        """A figure without tools; the browser sets its ranges."""
        log = {"x_axis_type": "log", "y_axis_type": "log"} if more.pop("log", False) else {}
        made = figure(
            height=height, x_range=Range1d(*x), y_range=Range1d(*y), toolbar_location=None, tools="", margin=0,
            output_backend="canvas", sizing_mode="stretch_width", html_attributes={"role": "img", "aria-label": title},
            **log, **more,
        )  # fmt: skip
        made.min_border, made.min_border_right = 4, 8
        made.outline_line_color = made.background_fill_color = made.border_fill_color = None
        for axis in made.axis:
            axis.minor_tick_line_color, axis.major_tick_in, axis.major_tick_out = None, 0, 3
            axis.major_label_text_font, axis.major_label_text_font_size = FONT, "11px"
            self.bind(axis, "major_label_text_color", "muted")
            self.bind(axis, "axis_line_color", "rule")
            self.bind(axis, "major_tick_line_color", "rule")
            axis.axis_label_text_font, axis.axis_label_text_font_size = FONT, "11px"
            axis.axis_label_text_font_style = "normal"
            self.bind(axis, "axis_label_text_color", "muted")
        for grid in made.grid:
            self.bind(grid, "grid_line_color", "grid")
        return made

    def cursor(self, made: Any) -> Any:
        """The line of the cursor in a figure."""
        span = Span(location=0, dimension="height", line_width=1.5, level="overlay")
        made.add_layout(span)
        self.bind(span, "line_color", "accent")
        return span

    def text(self, made: Any, source: Any, colour: str | None = "muted", **more: Any) -> Any:
        """Text glyphs in the views' type, coloured by token ``colour`` unless that is None."""
        glyph = made.text(
            "x", "y", "text", source=source, text_font_size="11px", text_font={"value": FONT}, **more
        ).glyph
        if colour is not None:
            self.bind(glyph, "text_color", colour)
        return glyph

    def div(self, **layout: Any) -> Any:
        """An empty place that the browser fills with native elements."""
        layout = {"sizing_mode": "stretch_width", **layout}
        return Div(text="", stylesheets=[self.sheet], disable_math=True, margin=0, **layout)

    def panel(self, name: str, title: str, body: list[Any], height: int, **parts: Any) -> Panel:
        """A view with its head and its table."""
        panel = Panel(name, title, body, {})
        panel.head = self.div(height=24)
        panel.table = self.div(height=height, visible=False)
        panel.parts = {"name": name, "title": title, "head": panel.head, "table": panel.table, "body": body, **parts}
        return panel
