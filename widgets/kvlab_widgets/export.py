"""A run as one file that can be stepped through: no network, no Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.resources import INLINE

from kvlab.store.rows import events_of
from kvlab.store.saved import SavedRun
from kvlab_widgets.channels import DocumentChannel
from kvlab_widgets.inspector import Inspector, Theme
from kvlab_widgets.packing import packed
from kvlab_widgets.rows import RunRows


def rows_of(run: Any) -> RunRows:
    """All rows of a run, saved or live, from its log as it is now."""
    rows = RunRows()
    rows.feed(event for _, event in events_of((run.refresh() if isinstance(run, SavedRun) else run).events))
    return rows


def page_html(run: Any, *, theme: Theme = "auto", page: bool = True, start: int | None = None) -> str:
    """The inspector of ``run`` as one HTML text."""
    return rows_html(rows_of(run), theme=theme, page=page, start=start)


def rows_html(rows: RunRows, *, theme: Theme, page: bool, start: int | None = None, live: bool = False) -> str:
    """The inspector of ``rows``, which are taken. A live one hears nothing here, and says so after a while."""
    inspector = Inspector(
        packed(rows.take()), page=page, channel=DocumentChannel() if live else None, theme=theme, start=start
    )
    document = Document()
    document.add_root(inspector.root)
    return str(file_html(document, INLINE, f"{rows.world.name or 'run'} · kvlab"))


def write_page(
    run: Any, path: str | Path, *, theme: Theme = "auto", page: bool = True, start: int | None = None
) -> Path:
    """Write the inspector of ``run`` to ``path``: one self-contained file, and return its path.

    Parameters
    ----------
    run
        A run, saved or live; what its log holds now is shown.
    page
        All views at once; False gives the smaller arrangement of a cell.
    start
        Moment to begin at; None for the last event.
    """
    target = Path(path)
    target.write_text(page_html(run, theme=theme, page=page, start=start), encoding="utf-8")
    return target
