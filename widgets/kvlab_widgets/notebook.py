"""The inspector in a cell: live through a thread of its own, also while a cell is busy; static once the run is over."""

from __future__ import annotations

import html
import threading
import time
from typing import Any

import panel as pn
from IPython.display import HTML, display

from kvlab_widgets.controls import controls
from kvlab_widgets.export import page_html, rows_of
from kvlab_widgets.feeds import Feed, feed_of
from kvlab_widgets.inspector import Inspector, Theme
from kvlab_widgets.packing import packed
from kvlab_widgets.telling import BATCH_SECONDS, Telling

HEIGHT = 660
"""px of a static copy."""


class CellInspector:
    """Shows a run in a cell. A run that goes on is followed; one that is over is shown as a static copy.

    Parameters
    ----------
    run
        A run of this kernel, or a saved one; a saved one that another process still writes is followed too.
    theme
        ``auto`` follows JupyterLab.
    """

    def __init__(self, run: Any, *, theme: Theme = "auto") -> None:
        self._run, self._theme = run, theme
        self._feed: Feed = feed_of(run)
        self._more = self._feed.poll()
        self._shown: Any = None
        self._inspector: Inspector | None = None

    def _ipython_display_(self) -> None:
        if not self._more:
            self._feed.close()
            display(self.static())
            return
        pn.extension(inline=True)
        self._inspector = Inspector(
            packed(self._feed.rows.take()), page=False, live=True, alone=False, theme=self._theme
        )
        pane = pn.pane.Bokeh(self._inspector.root, sizing_mode="stretch_width")
        telling = Telling(self._feed, self._inspector, lambda: pn.io.push_notebook(pane), lambda: rows_of(self._run))
        self._inspector.mirror.on_change("data", lambda _attr, _old, new: telling.heard(dict(new)))
        bar = controls(self._run)
        if bar is not None:
            display(bar)
        self._shown = display(pane, display_id=True)
        threading.Thread(target=self._follow, args=(telling,), name="kvlab-inspector", daemon=True).start()

    def _follow(self, telling: Telling) -> None:
        while telling.turn():
            time.sleep(BATCH_SECONDS)
        self.snapshot()

    def static(self) -> HTML:
        """A copy that needs no kernel: it can be stepped through in a notebook that is only read."""
        start = None
        if self._inspector is not None:
            told = self._inspector.mirror.data
            start = None if told["live"][0] else int(told["k"][0])
        page = page_html(self._run, theme=self._theme, page=False, start=start)
        return HTML(
            f'<iframe title="kvlab inspector" style="width:100%;height:{HEIGHT}px;border:0" '
            f'srcdoc="{html.escape(page)}"></iframe>'
        )

    def snapshot(self) -> None:
        """Put a static copy in the place of what is shown. Happens by itself when the run is over."""
        if self._shown is not None:
            self._shown.update(self.static())
