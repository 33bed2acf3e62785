"""How states, runs and labs show themselves in a cell: one small table each, in text and HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvlab.display.html import cell_html, html_table
from kvlab.display.quantities import bytes_text

if TYPE_CHECKING:
    from kvlab.runtime.handles import KVState
    from kvlab.runtime.lab import Lab
    from kvlab.runtime.run import Run

PREVIEW = 60
NOWHERE = {"spilled": "disk", "evicted": "no worker", "planned": "no worker"}
"""Where a state of that phase is, when no worker has all of it."""


def _rows(state: KVState) -> list[tuple[str, str]]:
    record = state.record
    made = (
        f"{record.lineage.operator} of {', '.join(record.lineage.parents)}"
        if record.lineage.parents
        else record.lineage.operator
    )
    return [
        ("state", f"{state.id} {record.name}".strip()),
        ("phase", state.phase),
        ("tokens", f"{state.n_tokens:,}" + (" and 1 not fed yet" if record.unfed else "")),
        (
            "bytes",
            f"{bytes_text(state.nbytes)} in {len(record.segments)} segment{'s' if len(record.segments) != 1 else ''}",
        ),
        ("on", ", ".join(state.workers) or NOWHERE.get(state.phase, "no single worker")),
        ("made by", f"{made}{'' if record.lineage.exact else ' (approximate)'}"),
        ("text", "…" + state.text[-PREVIEW:].replace("\n", " ") if len(state.text) > PREVIEW else state.text),
    ]


def state_text(state: KVState) -> str:
    """A state in one line."""
    rows = dict(_rows(state))
    tokens = f"{rows['tokens']} token{'' if state.n_tokens == 1 else 's'}"
    return f"<state {rows['state']}: {tokens}, {rows['bytes']}, {rows['phase']}, on {rows['on']}>"


def state_html(state: KVState) -> str:
    """A state as a small table."""
    return cell_html(html_table(_rows(state), ()))


def run_html(run: Run) -> str:
    """A run as its saved folder shows itself: picture, agents, totals."""
    from kvlab.display.report_page import run_html as page_html

    return page_html(run)


def lab_html(lab: Lab) -> str:
    """A lab: model, workers and states."""
    if lab.closed:
        return "<p>closed lab</p>"
    states = lab.states.to_pylist()
    rows = [
        (row["state"], row["name"], row["phase"], f"{row['n_tokens']:,}", bytes_text(row["own_bytes"]),
         ", ".join(row["workers"]), ", ".join(row["held_by"]))
        for row in states
    ]  # fmt: skip
    headers = ("state", "name", "phase", "tokens", "own K/V", "on", "held by")
    paced = f", links paced to {lab.core.pace}" if lab.core.pace else ""
    told = escape(f"{lab.card.name} on {', '.join(lab.workers)}{paced}")
    return cell_html(f"<p>{told}</p>{html_table(rows, headers, (3, 4))}")
