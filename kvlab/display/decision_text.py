"""Decisions, and the action that waits at a run's gate, as a person reads them: in one sentence, and as a table of roads."""

from __future__ import annotations

from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from kvlab.display.html import cell_html, decision_html, html_table
from kvlab.display.quantities import bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from kvlab.cost.decide import Decision
    from kvlab.cost.roads import Alternative
    from kvlab.runtime.units import PendingAction

HEADERS = ("road", "worker", "predicted", "its terms", "moves", "missing", "")
NUMERIC = frozenset({2, 4, 5})
WIDTH = 150
"""Columns of the plain table, at most: a decision has many terms."""


def road_text(road: Alternative) -> str:
    """``transfer on worker-1, 94.0 MiB, 0.31 s predicted``."""
    moved = f", {bytes_text(road.nbytes)}" if road.nbytes else ""
    return f"{road.how} on {road.worker}{moved}, {seconds_text(road.seconds)} predicted"


def decision_line(decision: Decision) -> str:
    """``planner→editor: transfer on worker-1, 94.0 MiB, 0.31 s predicted``."""
    return f"{decision.edge.id}: {road_text(decision.chosen)}"


def decision_text(decision: Decision) -> str:
    """All roads of a decision as a plain table, and why one was chosen."""
    rows = [[*_cells(road), _remark(decision, road)] for road in decision.alternatives]
    return f"{decision_line(decision)}\n{_plain(rows)}\n{decision.policy}: {decision.reason}"


def decision_as_html(decision: Decision) -> str:
    """:func:`decision_text` for a cell."""
    rows = [
        [decision_html(road.how, chosen=road is decision.chosen), *_cells(road)[1:], road.excluded or ""]
        for road in decision.alternatives
    ]
    told = f"<p><b>{escape(decision.edge.id)}</b> · {escape(decision.policy)}: {escape(decision.reason)}</p>"
    return cell_html(told + html_table(rows, HEADERS, NUMERIC))


def pending_text(pending: PendingAction) -> str:
    """``next: editor, by transfer of context:paper → worker-1, 94.0 MiB, 0.31 s predicted``."""
    who = ", ".join(pending.agents)
    if pending.decision is None:
        what = {"materialize": "prefill of", "text": "prefill and answer of"}.get(pending.op, f"{pending.op} of")
        return f"next: {what} {who}"
    road, source = pending.decision.chosen, pending.edge.split("→")[0]
    moved = f", {bytes_text(road.nbytes)}" if road.nbytes else ""
    return f"next: {who}, by {road.how} of {source} → {road.worker}{moved}, {seconds_text(road.seconds)} predicted"


def pending_html(pending: PendingAction) -> str:
    """:func:`pending_text` for a cell, with the roads of its edge."""
    told = cell_html(f"<p>{escape(pending_text(pending))}</p>")
    return told if pending.decision is None else told + decision_as_html(pending.decision)


def _cells(road: Alternative) -> list[str]:
    terms = ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in road.terms.items() if seconds)
    return [road.how, road.worker, seconds_text(road.seconds), terms, bytes_text(road.nbytes),
            count_text(road.missing_tokens)]  # fmt: skip


def _remark(decision: Decision, road: Alternative) -> str:
    return "chosen" if road is decision.chosen else road.excluded or ""


def _plain(rows: list[list[str]]) -> str:
    from rich.console import Console

    from kvlab.display.tables import plain_table

    out = StringIO()
    Console(file=out, width=WIDTH, color_system=None, legacy_windows=False).print(plain_table(HEADERS, rows, NUMERIC))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
