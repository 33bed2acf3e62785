"""Buttons of a run that goes on, in the cell above its inspector: they act on the run itself.

ipywidgets carry them, whose messages JupyterLab delivers beside a busy cell. No handler waits for anything: what it does
is to open, close or step a gate, or to note an override.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from kvlab.display.decision_text import pending_text, road_text
from kvlab.errors import KVLabError
from kvlab_widgets.look import style

CLASS = "kvlab-run"
"""The client finds the bar by it."""

SPEEDS = (("at full speed", 0.0), ("2 actions/s", 2.0), ("1 action/s", 1.0), ("1 in 3 s", 1 / 3))
END = ("to the end", "")
ELSEWHERE = (
    "Read only: this run belongs to another process. Step it there: run.step(), run.play(), or its own inspector."
)


class Controls:
    """The bar of one run.

    Attributes
    ----------
    box
        What is displayed.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self._step = self._button("Step", "Do the pending action, and stop again", run.step)
        self._play = self._button("Run on", "At this speed, to this breakpoint", self._run_on)
        self._pause = self._button("Pause", "Start nothing more; what runs, runs to its end", run.pause)
        self._cancel = self._button("Cancel", "End the run; what was made is kept", run.cancel)
        self._speed = ipywidgets.Dropdown(options=SPEEDS, tooltip="Speed of Run on")
        self._until = ipywidgets.Dropdown(options=[END, *_breakpoints(run)], tooltip="Breakpoint: pause before it")
        self._told = ipywidgets.HTML()
        self._roads = ipywidgets.Dropdown(options=[], tooltip="Choose another alternative for the pending action")
        self._roads.observe(self._chosen, "value")
        self._said: tuple[Any, ...] | None = None
        self._offered: Any = None
        for part, name in (
            (self._speed, "speed"),
            (self._until, "until"),
            (self._roads, "roads"),
            (self._told, "told"),
        ):
            part.add_class(f"{CLASS}-{name}")
        acts = ipywidgets.HBox([self._step, self._play, self._speed, self._until, self._pause, self._cancel])
        now = ipywidgets.HBox([self._told, self._roads])
        self.box = ipywidgets.VBox([ipywidgets.HTML(f"<style>{style('run')}</style>"), acts, now])
        self.box.add_class(CLASS)
        for part in (*acts.children, self._roads):
            hear_beside_cells(part)
        self.refresh()

    def refresh(self) -> None:
        """Show what the run is at now, if that has changed."""
        run = self._run
        status, pending = run.status, run.pending
        decision = pending.decision if pending is not None else None
        said = (status, str(pending), decision.chosen if decision is not None else None, run.over)
        if said == self._said:
            return
        self._said = said
        self._tell(_sentence(run, status, pending), status)
        self._step.disabled = status != "paused"
        self._play.disabled = run.over
        self._pause.disabled = status != "running" or run.over
        self._cancel.disabled = run.over
        roads = [] if decision is None else [road for road in decision.alternatives if road.excluded is None]
        self._offered = None  # what is set here is not a choice
        self._roads.options = [(road_text(road), (road.how, road.worker)) for road in roads]
        self._roads.value = (decision.chosen.how, decision.chosen.worker) if decision is not None and roads else None
        self._roads.layout.display = "" if roads else "none"
        self._offered = self._roads.value

    def _button(self, name: str, tooltip: str, act: Callable[[], Any]) -> Any:
        button = ipywidgets.Button(description=name, tooltip=tooltip)
        button.add_class(f"{CLASS}-{name.partition(' ')[0].lower()}")
        button.on_click(lambda _: self._act(act))
        return button

    def _act(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except KVLabError as error:
            self._said = None
            self._tell(str(error), "failed")
        else:
            self.refresh()

    def _run_on(self) -> None:
        self._run.play(speed=self._speed.value or None, until=self._until.value or None)

    def _chosen(self, change: Any) -> None:
        wanted = change["new"]
        if wanted is not None and self._offered is not None and wanted != self._offered:
            self._offered = wanted
            self._act(lambda: self._run.choose(*wanted))

    def _tell(self, text: str, status: str) -> None:
        self._told.value = f'<span role="status" data-kv="run-status" data-kv-status="{status}">{escape(text)}</span>'


def hear_beside_cells(widget: Any) -> None:
    """Let messages of ``widget`` be handled in the subshell that JupyterLab asks for.

    ipykernel 7.4 instead hands them to the shell whose cell made the widget, where they wait for running cells; that is
    for cells that await a widget, and nobody awaits these. Without that private name there is nothing to undo.
    """
    if hasattr(widget.comm, "_reply_subshell_for"):
        widget.comm._reply_subshell_for = lambda _data, asked: asked  # noqa: SLF001


def controls(run: Any) -> Controls | None:
    """The bar, or None for what cannot be stepped from here."""
    return Controls(run) if hasattr(run, "step") else None


def _breakpoints(run: Any) -> list[tuple[str, str]]:
    """(text, breakpoint): agents first, then operators, then states."""
    nodes = [node.id for node in run.graph.nodes]
    kinds = {str(node.kind) for node in run.graph.nodes}
    found = [name for name in run.breakpoints if name.count("→") == 0 or name.endswith("→")]
    told = {
        name: f"to {name}" if name in nodes else f"to any {name}" if name in kinds else f"to what starts on {name[:-1]}"
        for name in found
    }
    order = sorted(found, key=lambda name: (name not in nodes, name.endswith("→")))
    return [(told[name], name) for name in order]


def _sentence(run: Any, status: str, pending: Any) -> str:
    if run.over:
        stepped = ", stepped by a person" if run.world.run.get("stepped") else ""
        return f"run {status}{stepped}"
    if status == "paused":
        return pending_text(pending) if pending is not None else "paused: what was let through still runs"
    return "running" if status == "running" else f"{status}, saving what was measured"
