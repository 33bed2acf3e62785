"""The report as one HTML page that asks for nothing from outside, and the short form for a notebook's cell."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kvlab.bench import metrics
from kvlab.display.decision_quality import decision_quality
from kvlab.display.decisions_page import decisions_html
from kvlab.display.describe import run_line
from kvlab.display.graph_picture import run_svg
from kvlab.display.html import Html, html_table, style, text
from kvlab.display.inequality import flow_line
from kvlab.display.memory_picture import memory_svg
from kvlab.display.quantities import bytes_text, count_text, ratio, ratio_text, seconds_text
from kvlab.display.report_runs import Told
from kvlab.display.tables import comparison_html, verdict
from kvlab.display.timeline_picture import timeline_svg
from kvlab.display.worlds import Shown, world_of
from kvlab.store.fold import Row, World

_PAGE_STYLE = (
    "html{color-scheme:light dark}body{margin:0;background:#FFFFFF}"
    "@media (prefers-color-scheme:dark){body{background:#111417}}"
    "main.kv{max-width:1080px;margin:0 auto;padding:36px 28px 64px;background:var(--kv-background)}"
    ".kv .verdict{font-size:15px;line-height:24px;margin:8px 0 4px;max-width:76ch}"
    ".kv .figures{display:flex;flex-wrap:wrap;gap:14px 44px;margin:20px 0 18px}.kv .figures div{display:grid}"
    ".kv .figures b{font-size:26px;line-height:34px;font-weight:600}.kv .figures span{font-size:12px;line-height:17px}"
    ".kv .wide,.kv .picture{overflow-x:auto;margin:0 0 14px}"
    ".kv details{border-top:1px solid var(--kv-rule);padding:8px 0 4px}"
    ".kv summary{cursor:pointer;padding:2px 0}.kv summary .edge{font-weight:600;margin-right:14px}"
    ".kv summary .kv-how{margin-right:14px}.kv .why{margin:2px 0 8px 16px}.kv details .wide{margin-left:16px}"
    ".kv details .formula{margin:0 0 2px 16px}.kv details .formula+.wide{margin-top:8px}"
    ".kv details .kv-table{font-size:12px}.kv .did{font-weight:600}"
    ".kv .tag{font-size:10.5px;color:var(--kv-muted);border:1px solid var(--kv-rule);border-radius:3px;padding:0 5px}"
    ".kv .picture .kv-pic{margin-left:-18px;max-width:none!important}.kv .wide .kv-table td{white-space:nowrap}"
    ".kv .answer{white-space:pre-wrap;margin:4px 0 10px 16px;max-width:80ch}"
    ".kv dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0}.kv dt{font-weight:500}"
    ".kv dd{margin:0;overflow-wrap:anywhere}.kv .mem text{font-size:11px;fill:var(--kv-muted)}.kv .mem path{fill:none}"
    ".kv .time text{font-size:11px;fill:var(--kv-muted)}.kv .time .run{font-size:12px;fill:var(--kv-ink)}"
    ""
    ".kv .time .in{fill:var(--kv-background)}.kv .time .dark{fill:#111417}"
    ".kv .time .grid{stroke:var(--kv-rule)}"
    ".kv .mem .grid{stroke:var(--kv-rule)}.kv .mem .state{stroke:var(--kv-ink);stroke-width:1.6}"
    ".kv .mem .text{stroke:var(--kv-evicted);stroke-width:1.6;stroke-dasharray:5 4}"
    "@media print{main.kv{padding:0}}"
)


def page(told: Told) -> str:
    """The whole report. Every text that a person or a model wrote is escaped."""
    found = told.comparison
    first = world_of(told.runs[0])
    sections = [
        f"<h1>{text(told.title)}</h1>",
        f'<p class="verdict" data-kv-verdict>{text(verdict(found))}</p>',
        *(f'<p class="muted">{text(line)}</p>' for line in told.lines),
        _figures(told),
        *_remarks(told),
        "<h2>Agents and totals</h2>",
        f'<div class="wide">{comparison_html(told.subject, *told.textflows)}</div>',
        "<h2>State graph</h2>",
        *(f'<div class="picture">{run_svg(run)}</div>' for _, run in told.side_by_side),
        *_timeline(told),
        "<h2>Decisions</h2>",
        *_flows(told),
        *_quality(told),
        decisions_html(world_of(told.subject).rows["edges"]),
        "<h2>Memory and bytes</h2>",
        _memory(told),
        "<h2>Answers</h2>",
        _answers(told),
        "<h2>Runs</h2>",
        _runs(told),
        "<h2>Environment</h2>",
        _environments(told),
        "<h2>What the words mean</h2>",
        definitions_html(),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{text(told.title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_PAGE_STYLE}{style('.kv')}</style></head>"
        f'<body><main class="kv" data-kv-report="{text(first.name)}">{"".join(sections)}</main></body></html>\n'
    )


def run_html(run: Shown) -> str:
    """A run in a notebook's cell: one line, its picture, its table."""
    return (
        f'<div class="kv"><style>{style(".kv")}</style><p><b>{text(run_line(run))}</b></p>'
        f"{run_svg(run)}{comparison_html(run)}</div>"
    )


def definitions_html() -> Html:
    """Every metric's definition, from the docstring of :mod:`kvlab.bench.metrics`."""
    return Html(
        "<dl>" + "".join(f"<dt>{text(term)}</dt><dd>{text(meaning)}</dd>" for term, meaning in definitions()) + "</dl>"
    )


def definitions() -> list[tuple[str, str]]:
    """(metric, definition) as :mod:`kvlab.bench.metrics` states them."""
    found: list[tuple[str, str]] = []
    for row in inspect.cleandoc(metrics.__doc__ or "").splitlines()[1:]:
        if row and not row.startswith(" "):
            found.append((row, ""))
        elif row.strip() and found:
            term, meaning = found[-1]
            found[-1] = (term, f"{meaning} {row.strip()}".strip().replace("*", ""))
    return found


def _remarks(told: Told) -> Iterable[str]:
    """Warnings and errors, each once, with the runs that said it."""
    said: dict[str, list[str]] = {}
    for label, world in told.labelled:
        for row in world.rows["notes"]:
            if row["level"] != "info":
                said.setdefault(str(row["text"]), []).append(label)
        if world.run.get("error"):
            said.setdefault(str(world.run["error"]), []).append(label)
    for remark, labels in said.items():
        yield f'<p class="warning">⚠ {text(", ".join(dict.fromkeys(labels)))}: {text(remark)}</p>'


def _figures(told: Told) -> str:
    """The few numbers that matter, large."""
    found = told.comparison
    same = found.n_same_tokens
    tiles = [
        (ratio_text(found.median_ttft_ratio), "time to first token", "text/state, median of agents"),
        (ratio_text(found.wall_ratio), "wall time", "text/state"),
        (ratio_text(found.prefill_ratio), "tokens prefilled", "text/state"),
        (f"{same[0]} of {same[1]}" if same else None, "agents", "answered with the same tokens"),
    ]
    if found.text is None:
        share = found.run.share_reused
        tiles = [
            (seconds_text(found.run.wall_seconds), "wall time", "measured"),
            (None if share is None else f"{share:.0%}", "prompt tokens reused", "measured"),
            (bytes_text(found.run.bytes_moved), "moved", "measured"),
            (bytes_text(found.run.peak_kv_bytes), "peak K/V", "measured"),
        ]
    cells = (
        f'<div><b>{text(value)}</b><span>{label}</span><span class="muted">{note}</span></div>'
        for value, label, note in tiles
        if value is not None
    )
    return f'<div class="figures">{"".join(cells)}</div>'


def _flows(told: Told) -> Iterable[str]:
    """What each flow's work came to, as AAFLOW+ sums it."""
    lines = dict.fromkeys(flow_line(world) for _, world in told.labelled)
    for line in filter(None, lines):
        yield f'<p class="muted formula">{text(line)}</p>'


def _timeline(told: Told) -> list[str]:
    picture = timeline_svg(told.side_by_side)
    return ["<h2>When each worker computed</h2>", f'<div class="picture">{picture}</div>'] if picture else []


def _quality(told: Told) -> list[Html]:
    lines = decision_quality(world_of(told.subject)).lines if world_of(told.subject).rows["edges"] else {}
    return [
        Html(f'<p class="muted" data-kv-quality="{text(name)}">{text(name)}: {text(line)}.</p>')
        for name, line in lines.items()
    ]


def _memory(told: Told) -> Html:
    parts = [Html(f'<div class="picture">{memory_svg(told.side_by_side)}</div>')]
    workers = [[label, *cells] for label, world in told.labelled for cells in _workers(world)]
    if workers:
        headers = ["run", "worker", "host", "device", "limit", "K/V placed", "K/V its own", "process", "at the end"]
        parts.append(Html(f'<div class="wide">{html_table(workers, headers, {4, 5, 6, 7})}</div>'))
    links = [[label, *cells] for label, world in told.labelled for cells in _links(world)]
    if links:
        headers = ["run", "from", "to", "how", "segments", "bytes", "busy", "rate"]
        parts.append(Html(f'<div class="wide">{html_table(links, headers, {4, 5, 6, 7})}</div>'))
    return Html("".join(parts) + '<p class="muted">All of it is measured.</p>')


def _workers(world: World) -> list[list[object]]:
    last = {row["worker"]: row for row in world.rows["memory"]}
    found: list[list[object]] = []
    for worker in world.rows["workers"]:
        sample = last.get(worker["worker"], {})
        numbers = (worker["memory_bytes"], worker["kv_bytes"], sample.get("kv_unique_bytes"), sample.get("pss_bytes"))
        status = worker["status"] if worker["status"] == "running" else f"{worker['status']}: {worker['reason']}"
        found.append([worker["worker"], worker["host"], worker["device"], *map(bytes_text, numbers), status])
    return found


def _links(world: World) -> list[list[object]]:
    pairs: dict[tuple[str, str, str], list[Row]] = {}
    for row in world.rows["transfers"]:
        if row["direction"] == "received":
            pairs.setdefault((str(row["peer"]), str(row["worker"]), str(row["how"])), []).append(row)
    found: list[list[object]] = []
    for (source, target, how), rows in pairs.items():
        nbytes, seconds = sum(row["nbytes"] or 0 for row in rows), sum(row["seconds"] or 0.0 for row in rows)
        rate = ratio(nbytes, seconds)
        per_second = f"{bytes_text(round(rate))}/s" if rate else "–"
        found.append(
            [source, target, how, count_text(len(rows)), bytes_text(nbytes), seconds_text(seconds), per_second]
        )
    return found


def _answers(told: Told) -> Html:
    if told.redact:
        return Html('<p class="muted">Texts are left out of this report on request.</p>')
    parts = []
    for agent in told.comparison.agents:
        said: dict[str, list[str]] = {}
        for label, world in told.labelled:
            turn = world.find("turns", agent.agent)
            if turn is not None and turn["text"]:
                said.setdefault(str(turn["text"]), []).append(label)
        for answer, labels in said.items():
            whose = "" if len(said) == 1 else f' <span class="muted">{text(", ".join(labels))}</span>'
            parts.append(f"<details open><summary><b>{text(agent.agent)}</b>{whose}</summary>")
            parts.append(f'<div class="answer">{text(answer)}</div></details>')
    return Html("".join(parts))


def _runs(told: Told) -> Html:
    rows = []
    for label, run, figures in told.totals:
        folder = getattr(run, "path", None)
        rows.append(
            [
                label,
                figures.status,
                seconds_text(figures.wall_seconds),
                count_text(figures.n_prefilled),
                count_text(figures.n_reused),
                bytes_text(figures.bytes_moved),
                bytes_text(figures.peak_kv_bytes),
                count_text(world_of(run).n_events),
                str(folder) if folder is not None else None,
            ]
        )
    headers = ["run", "status", "wall", "prefilled", "reused", "moved", "peak K/V", "events", "folder"]
    return Html(f'<div class="wide">{html_table(rows, headers, {2, 3, 4, 5, 6, 7})}</div>')


def _environments(told: Told) -> Html:
    """Once where all runs agree, else under the names of the runs."""
    groups: dict[str, list[str]] = {}
    for label, environment in told.environments:
        groups.setdefault(json.dumps(environment, sort_keys=True), []).append(label)
    parts = []
    for written, labels in groups.items():
        if len(groups) > 1:
            parts.append(f"<p><b>{text(', '.join(labels))}</b></p>")
        parts.append(
            "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in flat(json.loads(written))) + "</dl>"
        )
    return Html("".join(parts))


def flat(document: Mapping[str, Any], under: str = "") -> Iterable[tuple[str, str]]:
    """Leaves of nested JSON with dotted names."""
    for key, value in document.items():
        name = f"{under}.{key}" if under else str(key)
        if isinstance(value, Mapping):
            yield from flat(value, name)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)
