"""The report for programs: JSON, CSV and Markdown, with the same figures as the page."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from kvlab.display.comparison import compare
from kvlab.display.drawing import actual_terms_of, alternatives_of
from kvlab.display.report_page import definitions, flat
from kvlab.display.report_runs import Told
from kvlab.display.tables import agent_rows, caption, total_rows, verdict
from kvlab.store.fold import World

SCHEMA_VERSION = 1

_EDGE = (
    "edge",
    "source",
    "target",
    "n_tokens",
    "chosen",
    "worker",
    "reason",
    "predicted_seconds",
    "actual_how",
    "actual_worker",
    "actual_seconds",
    "actual_nbytes",
    "because",
)


def document(told: Told) -> dict[str, Any]:
    """``summary.json``: every figure with its unit in its name; predictions only under ``decisions``."""
    found = told.comparison
    same = found.n_same_tokens
    return {
        "schema_version": SCHEMA_VERSION,
        "title": told.title,
        "verdict": verdict(found),
        "ratios_text_over_state": {
            "median_ttft": found.median_ttft_ratio,
            "wall": found.wall_ratio,
            "prefilled": found.prefill_ratio,
        },
        "agents_with_same_tokens": None if same is None else {"same": same[0], "of": same[1]},
        "runs": [
            {
                "label": label,
                "stepped": bool(world.run.get("stepped")),
                **asdict(figures),
                "agents": [asdict(agent) for agent in compare(run).agents],
                "decisions": _decisions(world),
            }
            for (label, run, figures), (_, world) in zip(told.totals, told.labelled, strict=True)
        ],
        "definitions": dict(definitions()),
        "provenance": "measured, but for predicted_seconds and alternatives of decisions, which are predicted",
    }


def csv_text(told: Told) -> str:
    """``summary.csv``: one row per run and agent; seconds and tokens, measured."""
    out = io.StringIO()
    names = ["ttft_seconds", "queue_seconds", "n_prefilled", "n_reused", "n_generated", "chosen", "did", "worker"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "flow", "agent", *names])
    for label, run, figures in told.totals:
        for agent in compare(run).agents:
            values = [getattr(agent, name) for name in names]
            writer.writerow([_cell(value) for value in (label, figures.flow, agent.agent, *values)])
    return out.getvalue()


def markdown(told: Told) -> str:
    """``summary.md``."""
    found = told.comparison
    parts = [f"# {_md(told.title)}", verdict(found), *map(_md, told.lines)]
    for headers, rows in (agent_rows(found), total_rows(found)):
        parts.append(_md_table(headers, rows))
    parts.append(caption(found))
    decisions = [
        [
            f"{row['source']} → {row['target']}",
            str(row["chosen"]),
            _seconds(row["predicted_seconds"]),
            str(row["actual_how"] or "–"),
            _seconds(row["actual_seconds"]),
            str(row["because"] or row["reason"] or ""),
        ]
        for row in told.labelled[0][1].rows["edges"]
    ]
    if decisions:
        headers = ["state edge", "chosen", "predicted (s)", "did", "measured (s)", "why"]
        parts += ["## Decisions", _md_table(headers, decisions)]
    if not told.redact:
        parts.append("## Answers")
        for agent in found.agents:
            turn = told.labelled[0][1].find("turns", agent.agent)
            if turn is not None and turn["text"]:
                quoted = "\n".join(f"> {_md(row)}" for row in str(turn["text"]).splitlines())
                parts.append(f"**{_md(agent.agent)}**\n\n{quoted}")
    parts.append("## Environment")
    for label, environment in told.environments:
        parts.append(f"{_md(label)}: " + "; ".join(f"{_md(k)} = {_md(v)}" for k, v in flat(environment)))
    parts.append("## What the words mean")
    parts += [f"- **{_md(term)}**: {_md(meaning)}" for term, meaning in definitions()]
    return "\n\n".join(parts) + "\n"


def _decisions(world: World) -> list[dict[str, Any]]:
    return [
        {
            **{name: row[name] for name in _EDGE},
            "alternatives": alternatives_of(row),
            "actual_terms": actual_terms_of(row),
        }
        for row in world.rows["edges"]
    ]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _cell(value: object) -> object:
    """A spreadsheet runs a text that begins like a formula; a quote keeps it a text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def _md(value: object) -> str:
    """Text that Markdown shows as it is."""
    plain = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return "".join(f"\\{c}" if c in "\\`*_[]|#" else c for c in plain)


def _md_table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *([_md(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
