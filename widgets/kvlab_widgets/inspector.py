"""The inspector as one Bokeh document: the same in a cell, on a page and in a file."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bokeh.models import CDSView, Column, ColumnDataSource, CustomJS, CustomJSFilter, InlineStyleSheet, Row

from kvlab_widgets.channels import Channel
from kvlab_widgets.figures import Build, Panel
from kvlab_widgets.look import DECISION_DASHES, style, theme
from kvlab_widgets.rows import DECISIONS, KINDS, PHASES, TABLES
from kvlab_widgets.views.decision import decision
from kvlab_widgets.views.events import events
from kvlab_widgets.views.graph import graph
from kvlab_widgets.views.lineage import lineage
from kvlab_widgets.views.memory import memory
from kvlab_widgets.views.quality import quality
from kvlab_widgets.views.timeline import timeline

Theme = Literal["auto", "light", "dark"]

CAP = 450
"""Places for states in the window, at most: more cannot be told apart. About a quarter stays empty; a narrow cell has fewer."""

SIDE = {"cell": 388, "page": 560}
"""Width of the right column in px."""

GIVES: dict[str, tuple[dict[tuple[str, str], int], ...]] = {
    "page": (
        {("graph", "figure"): 60, ("timeline", "figure"): 20},
        {("decision", "figure"): 60, ("memory", "bars"): 20, ("memory", "total"): 24},
    ),
    "cell": ({}, {("decision", "figure"): 14, ("memory", "bars"): 10, ("memory", "total"): 8}),
}
"""Columns of (view, its chart) → how many px the chart can give where there is not enough room, and stay readable."""

_FOLDER = Path(__file__).parent
_MODULES = (
    *(f"client/{name}.mjs" for name in ("format", "columns", "layer", "store", "panel", "roads")),
    *(f"client/{name}.mjs" for name in ("notice", "room", "transport", "channel")),
    *(f"views/{name}.mjs" for name in ("places", "finding", "groups", "overview", "above", "pages")),
    *(f"views/{name}.mjs" for name in ("graph", "timeline", "decision", "lineage", "memory", "quality", "events")),
    "client/client.mjs",
)


class Inspector:
    """Models of one inspector.

    Parameters
    ----------
    packed
        Rows that it starts with (:func:`kvlab_widgets.packing.packed`); empty if they come later.
    page
        On a page of its own, all views at once; else in a cell, some of them in tabs.
    channel
        Through which more rows may come; None for what is whole.
    alone
        The document around it is its own, so it colours that too.
    theme
        ``auto`` follows JupyterLab, else the system.
    start
        Moment to begin at; None for the last.
    mark
        Name under which a tab of the browser remembers where it was, for when it is reloaded; None: one of its own.
    elsewhere
        Where a run that goes on can be stepped, if not here.

    Attributes
    ----------
    root
        What is displayed.
    """

    def __init__(
        self,
        packed: bytes,
        *,
        page: bool,
        channel: Channel | None = None,
        alone: bool = True,
        theme: Theme = "auto",
        start: int | None = None,
        mark: str | None = None,
        elsewhere: str = "",
    ) -> None:
        self.build = Build(page)
        panels, tabs, tabbar, rows = _page(self.build) if page else _cell(self.build)
        bar, notice = self.build.div(height=38), self.build.div(height=28, visible=False)
        self.root = Column(
            bar, notice, *rows, sizing_mode="stretch_width", margin=0, stylesheets=[InlineStyleSheet(css=style("root"))],
            html_attributes={
                "tabindex": "0", "role": "group", "aria-label": "kvlab inspector", "data-kv": "inspector",
                "data-lm-suppress-shortcuts": "true",
            },
        )  # fmt: skip
        told = {
            "root": self.root, "bar": bar, "notice": notice, "tabs": tabs, "tabbar": tabbar,
            "channel": channel.told if channel is not None else None,
            "room": _room(panels, GIVES["page" if page else "cell"]),
            "views": {panel.name: panel.parts for panel in panels},
            "layers": self.build.layers, "binds": self.build.binds, "fades": self.build.fades, "packed": packed,
            "tokens": _themes(), "meta": {
                **_meta(page=page, live=channel is not None, own=alone, theme=theme, start=start),
                "mark": mark or secrets.token_hex(8), "elsewhere": elsewhere,
            },
        }  # fmt: skip
        boot = CustomJS(code=client_module(), module=True, args=told)
        _start_with(panels[0].parts["figure"], boot)
        for model in self.root.references():
            if channel is None or model not in channel.models:
                model.syncable = False


def client_module() -> str:
    """The browser's half: all files of ``client/`` and ``views/`` as one ES module."""
    return "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _MODULES)


def _themes() -> dict[str, dict[str, str]]:
    return {"light": theme(0), "dark": theme(1)}


def _meta(*, page: bool, live: bool, own: bool, theme: Theme, start: int | None) -> Mapping[str, Any]:
    return {
        "page": page, "live": live, "own": own, "theme": theme, "start": start, "cap": CAP,
        "kinds": list(KINDS), "phases": list(PHASES), "decisions": list(DECISIONS),
        "dashes": [list(dash) for dash in DECISION_DASHES],
        "columns": {name: list(columns) for name, columns in TABLES.items()},
    }  # fmt: skip


def _start_with(figure: Any, boot: Any) -> None:
    """Run ``boot`` wherever ``figure`` is rendered: in a cell, on a page, in a file, and again when it is mounted again.

    Document events are not raised in all of these; the filter of a renderer is always asked.
    """
    code = "setTimeout(() => boot.execute(source), 0); return null"
    view = CDSView(filter=CustomJSFilter(args={"boot": boot}, code=code))
    figure.scatter("x", "y", source=ColumnDataSource({"x": [-99], "y": [-99]}), view=view)


def _room(panels: list[Panel], gives: tuple[dict[tuple[str, str], int], ...]) -> list[list[list[Any]]]:
    parts = {panel.name: panel.parts for panel in panels}
    return [[[parts[view][chart], px] for (view, chart), px in column.items()] for column in gives]


def _row(*columns: Any, **layout: Any) -> Any:
    return Row(*columns, sizing_mode="stretch_width", margin=0, **{"spacing": 24, **layout})


def _column(*parts: Any, width: int | None = None) -> Any:
    size = {"width": width} if width is not None else {"sizing_mode": "stretch_width"}
    return Column(*parts, margin=0, spacing=8, **size)


def _wide(panel: Panel) -> Any:
    return panel.column(sizing_mode="stretch_width")


def _page(build: Build) -> tuple[list[Panel], list[Any], Any, list[Any]]:
    first, second = graph(build, 500), timeline(build, 150)
    third, fourth = decision(build, 180, 252), memory(build, 104, 104)
    low = [lineage(build, 120, 150), quality(build, 270), events(build, 270)]
    left = _column(_wide(first), _wide(second))
    right = _column(_wide(third), _wide(fourth), width=SIDE["page"])
    return [first, second, third, fourth, *low], [], None, [_row(left, right), _row(*map(_wide, low))]


def _cell(build: Build) -> tuple[list[Panel], list[Any], Any, list[Any]]:
    first, second = graph(build, 398), timeline(build, 118)
    third, fourth = decision(build, 106, 186), memory(build, 84, 78)
    more = [lineage(build, 140, 160), quality(build, 300), events(build, 300)]
    tabbar = build.div(height=34)
    names = ("Decision", "Lineage", "Quality", "Events")
    tabs = [[name, _wide(panel)] for name, panel in zip(names, (third, *more), strict=True)]
    left = _column(_wide(first), _wide(second))
    right = _column(Column(tabbar, *(model for _, model in tabs), margin=0, sizing_mode="stretch_width"), _wide(fourth),
                    width=SIDE["cell"])  # fmt: skip
    return [first, second, third, fourth, *more], tabs, tabbar, [_row(left, right)]
