"""Buttons of a run that goes on, in a cell: step, play, pause, cancel. They act on the run itself."""

from __future__ import annotations

from typing import Any

import ipywidgets


def controls(run: Any) -> Any:
    """The buttons, or None for a run of another process, which can only be looked at."""
    if not all(hasattr(run, name) for name in ("step", "play", "pause", "cancel")):
        return None
    told = ipywidgets.Label(value=_status(run))
    buttons = []
    for name, title in (
        ("step", "Do the next action"),
        ("play", "Run on"),
        ("pause", "Start nothing more"),
        ("cancel", "End the run; what was made is kept"),
    ):
        button = ipywidgets.Button(description=name, tooltip=title, layout=ipywidgets.Layout(width="76px"))
        button.on_click(lambda _, name=name: _pressed(getattr(run, name), run, told))
        buttons.append(button)
    return ipywidgets.HBox([ipywidgets.Label(value=f"run {run.name}"), *buttons, told])


def _pressed(act: Any, run: Any, told: Any) -> None:
    act()
    told.value = _status(run)


def _status(run: Any) -> str:
    return str(run.status)
