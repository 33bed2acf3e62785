"""The table of a run: per agent and in total, beside textflow. For a terminal (rich) and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvlab.display.comparison import AgentFigures, Comparison, RunFigures, compare
from kvlab.display.html import Html, decision_html, html_table, text
from kvlab.display.quantities import NONE, bytes_text, count_text, counted, ratio, ratio_text, seconds_text
from kvlab.display.worlds import Shown

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_Rows = list[list[str]]

MANY_COLUMNS, NAME_WIDTH = 8, 16
"""A terminal of 80 columns holds the comparison of agents with names up to 13."""

TEXT_COLUMNS = frozenset({"agent", "same", "state edge", "total"})
"""Headers of the columns that are not numbers."""


def numeric(headers: Sequence[str]) -> frozenset[int]:
    """Which columns are numbers."""
    return frozenset(index for index, header in enumerate(headers) if header not in TEXT_COLUMNS)


def agent_rows(found: Comparison) -> tuple[list[str], _Rows]:
    """Headers and cells, one row an agent."""
    beside = found.text is not None
    headers = ["agent", "TTFT", *(["text TTFT", "ratio"] if beside else ["queue"])]
    headers += ["prefilled", "reused", "generated", *(["same"] if beside else []), "state edge"]
    rows = []
    for agent in found.agents:
        row = [agent.agent, seconds_text(agent.ttft_seconds)]
        if beside:
            row += [seconds_text(agent.text_ttft_seconds), ratio_text(agent.ttft_ratio)]
        else:
            row.append(seconds_text(agent.queue_seconds))
        row += [count_text(n) for n in (agent.n_prefilled, agent.n_reused, agent.n_generated)]
        if beside:
            row.append({None: NONE, True: "yes", False: "no"}[agent.same_tokens])
        rows.append([*row, agent.decision or NONE])
    return headers, rows


def total_rows(found: Comparison) -> tuple[list[str], _Rows]:
    """Headers and cells, one row a measure."""
    state, beside = found.run, found.text
    measures = (
        ("wall time", "wall_seconds", seconds_text),
        ("tokens prefilled", "n_prefilled", count_text),
        ("tokens reused", "n_reused", count_text),
        ("tokens generated", "n_generated", count_text),
        ("bytes moved", "bytes_moved", bytes_text),
        ("peak KV bytes", "peak_kv_bytes", bytes_text),
    )
    headers = ["total", f"{state.flow or 'this'}flow"]
    if beside is None:
        return headers, [[label, show(getattr(state, name))] for label, name, show in measures]
    rows = [
        [
            label,
            show(getattr(state, name)),
            show(getattr(beside, name)),
            ratio_text(ratio(getattr(beside, name), getattr(state, name)) or None),
        ]
        for label, name, show in measures
    ]
    return [*headers, "textflow", "text/state"], rows


def comparison_table(run: Shown, *textflows: Shown) -> Group:
    """The demo's table for a terminal: agents, totals and their ratios. All numbers are measured."""
    from rich.console import Group
    from rich.text import Text

    found = compare(run, textflows)
    tables = [plain_table(headers, rows, numeric(headers)) for headers, rows in (agent_rows(found), total_rows(found))]
    return Group(tables[0], Text(), tables[1], Text(caption(found), style="dim"))


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]) -> Table:
    """A rich table without lines. Where there is no room texts are folded, numbers never."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2 if len(headers) <= MANY_COLUMNS else 1, 0, 0), header_style="dim")
    for index, header in enumerate(headers):
        width = max(map(len, (header, *(row[index] for row in rows))))
        least = width if index in right else min(width, NAME_WIDTH if index == 0 else len("recompute"))
        table.add_column(header, justify="right" if index in right else "left", min_width=least, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def comparison_html(run: Shown, *textflows: Shown) -> Html:
    """The same as HTML."""
    found = compare(run, textflows)
    headers, rows = agent_rows(found)
    cells: list[list[object]] = [
        [*row[:-1], _decision_cell(agent)] for row, agent in zip(rows, found.agents, strict=True)
    ]
    total_headers, totals = total_rows(found)
    return Html(
        html_table(cells, headers, numeric(headers))
        + "<p></p>"
        + html_table(totals, total_headers, numeric(total_headers))
        + f'<p class="muted">{caption(found)}</p>'
    )


def _decision_cell(agent: AgentFigures) -> Html:
    planned = f' <span class="muted">(planned {text(agent.chosen)})</span>' if agent.deviated else ""
    return Html(f"{decision_html(agent.did or agent.chosen)}{planned}")


def caption(found: Comparison) -> str:
    """What the numbers of a comparison are."""
    if found.text is None:
        return "All numbers are measured."
    runs = "one textflow run" if found.n_text_runs == 1 else f"the best of {found.n_text_runs} textflow runs"
    return (
        f"All numbers are measured. Text TTFT is, for each agent, that of {runs}; textflow's totals are "
        "those of the fastest. Ratio: text/state. Same: the very same token ids in both flows."
    )


def verdict(found: Comparison) -> str:
    """One sentence: what came of it."""
    run = found.run
    if run.status != "done":
        return f"This run is {run.status}: the numbers below are what was measured until then."
    if found.text is None:
        return _alone(run)
    said = []
    if (ttft := found.median_ttft_ratio) is not None:
        said.append(f"first tokens {_faster(ttft)} (median of agents)")
    if (wall := found.wall_ratio) is not None:
        said.append(f"the whole run {_faster(wall)}")
    if (prefill := found.prefill_ratio) is not None:
        said.append(f"{ratio_text(prefill)} fewer tokens prefilled" if prefill > 1 else "no fewer tokens prefilled")
    same = found.n_same_tokens
    ending = f" {same[0]} of {counted(same[1], 'agent')} answered with the very same tokens." if same else ""
    return f"State against text: {', '.join(said)}.{ending}"


def _faster(factor: float) -> str:
    return f"{ratio_text(factor)} faster" if factor >= 1 else f"{ratio_text(1 / factor)} slower"


def _alone(run: RunFigures) -> str:
    share = run.share_reused
    reused = f", {share:.0%} of prompt tokens reused" if share is not None else ""
    return f"Done in {seconds_text(run.wall_seconds)}{reused}, {bytes_text(run.bytes_moved)} moved."
