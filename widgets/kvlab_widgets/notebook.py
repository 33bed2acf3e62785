"""The inspector in a cell: live through a thread of its own, also while a cell is busy; static once the run is over."""

from __future__ import annotations

import html
import secrets
import threading
import time
from typing import Any

import panel as pn
from IPython.display import HTML, display

from kvlab_widgets.channels import CellChannel
from kvlab_widgets.controls import ELSEWHERE, controls
from kvlab_widgets.export import page_html, rows_of
from kvlab_widgets.feeds import Feed, feed_of
from kvlab_widgets.inspector import Inspector, Theme
from kvlab_widgets.packing import packed
from kvlab_widgets.telling import BATCH_SECONDS, Telling

HEIGHT = 660
"""px of a static copy."""


class CellInspector:
    """Shows a run in a cell. A run that goes on is followed; one that is over is shown as a static copy.

    Each display is an inspector of its own, so one run may have several.

    Parameters
    ----------
    run
        A run of this kernel, or a saved one; a saved one that another process still writes is followed too. Or what a
        lab's verbs do.
    theme
        ``auto`` follows JupyterLab.
    """

    def __init__(self, run: Any, *, theme: Theme = "auto") -> None:
        self._run, self._theme = run, theme

    def _ipython_display_(self) -> None:
        feed = feed_of(self._run)
        if feed.poll():
            _Live(self._run, feed, self._theme).show()
        else:
            feed.close()
            display(self.snapshot())

    def snapshot(self) -> HTML:
        """A copy as of now that needs no kernel. Made by itself when a run ends that is shown live."""
        return static(self._run, self._theme)


class _Live:
    """One display of a run that goes on: the run's buttons, the inspector below, and a thread that keeps both fresh."""

    def __init__(self, run: Any, feed: Feed, theme: Theme) -> None:
        self._run, self._theme = run, theme
        foreign = not hasattr(run, "follow")
        mark = secrets.token_hex(8)
        self._controls = controls(run)
        self._channel = CellChannel(mark, [self._controls.box] if self._controls is not None else [])
        self._inspector = Inspector(
            packed(feed.rows.take()), page=False, channel=self._channel, alone=False, theme=theme, mark=mark,
            elsewhere=ELSEWHERE if foreign else "",
        )  # fmt: skip
        self._telling = Telling(feed, self._channel, lambda: rows_of(run))
        self._bar: Any = None
        self._shown: Any = None

    def show(self) -> None:
        """Display it, and follow from now on."""
        pn.extension(inline=True)
        self._bar = display(self._channel.box, display_id=True)
        self._shown = display(pn.pane.Bokeh(self._inspector.root, sizing_mode="stretch_width"), display_id=True)
        threading.Thread(target=self._follow, name="kvlab-inspector", daemon=True).start()

    def _follow(self) -> None:
        while self._telling.turn():
            if self._controls is not None:
                self._controls.refresh()
            time.sleep(BATCH_SECONDS)
        # Widgets need a kernel; what is left of a run that is over does not.
        self._bar.update(HTML(""))
        self._channel.close()
        told = self._telling.mirror
        start = None if told["live"] else int(told["k"])
        self._shown.update(static(self._run, self._theme, start))


def static(run: Any, theme: Theme, start: int | None = None) -> HTML:
    """A copy that needs no kernel: it can be stepped through in a notebook that is only read."""
    page = page_html(run, theme=theme, page=False, start=start)
    return HTML(
        f'<div><iframe title="kvlab inspector" style="width:100%;height:{HEIGHT}px;border:0" '
        f'srcdoc="{html.escape(page)}"></iframe></div>'
    )
