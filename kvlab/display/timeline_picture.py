"""When each worker computed, as SVG: runs of one workflow below each other on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvlab.display.html import Html, text
from kvlab.display.look import DASHES, decision_token
from kvlab.display.quantities import seconds_text
from kvlab.store.fold import World
from kvlab.store.fold_work import BATCH

WIDTH, LEFT, RIGHT, ROW, GAP, BAR, FOOT = 1000, 170, 24, 26, 12, 16, 26
CHARACTER = 6.2
"""Mean advance of the 11 px system font, in px; decides whether a name fits into its span."""


@dataclass(frozen=True, slots=True)
class Span:
    """Work of one operator on one worker, in seconds since its run began; ``how`` is how its state came there."""

    worker: str
    agent: str
    op: str
    start: float
    end: float
    how: str | None


def spans(world: World) -> list[Span]:
    """What is known of finished work, in the order of its start (measured, on the workers' clocks)."""
    began = world.run.get("started_ns")
    if began is None:
        return []
    found = []
    for row in world.rows["operators"]:
        if row["started_ns"] is None or row["finished_ns"] is None:
            continue
        agents = str(row["agent"] or row["subject"] or row["action"])
        first = agents.split(BATCH, 1)[0]
        edge = next((e for e in world.rows["edges"] if e["target"] in (agents, first)), None)
        how = (edge["actual_how"] or edge["chosen"]) if edge else None
        start, end = ((row[name] - began) / 1e9 for name in ("started_ns", "finished_ns"))
        found.append(Span(str(row["worker"]), agents, str(row["op"]), start, end, how))
    return sorted(found, key=lambda span: span.start)


def timeline_svg(runs: Sequence[tuple[str, World]]) -> Html:
    """The picture, or an empty string if no run has finished any work."""
    known = [(label, world, found) for label, world in runs if (found := spans(world))]
    if not known:
        return Html("")
    ends = [span.end for _, _, found in known for span in found] + [world.wall_seconds or 0.0 for _, world, _ in known]
    until = max(ends) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / until
    body: list[str] = []
    y = 6.0
    for label, _, found in known:
        workers = sorted({span.worker for span in found})
        body.append(f'<text class="run" x="0" y="{y + 17:.0f}">{text(label)}</text>')
        for worker in workers:
            body.append(f'<text x="{LEFT - 12}" y="{y + 17:.0f}" text-anchor="end">{text(worker)}</text>')
            body.append(f'<path class="grid" d="M{LEFT} {y + ROW / 2:.1f}H{WIDTH - RIGHT}"/>')
            body += [_span(span, y + (ROW - BAR) / 2, scale) for span in found if span.worker == worker]
            y += ROW
        y += GAP
    step = _step(until)
    for tick in range(int(until / step) + 1):
        at = LEFT + tick * step * scale
        body.append(f'<text x="{at:.1f}" y="{y + 12:.0f}" text-anchor="middle">{seconds_text(tick * step)}</text>')
    height = y + FOOT - 6
    return Html(
        f'<svg class="time" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
        f"<title>When each worker computed (measured)</title>{''.join(body)}</svg>"
    )


def _span(span: Span, y: float, scale: float) -> str:
    x, width = LEFT + span.start * scale, max(1.5, (span.end - span.start) * scale)
    token = decision_token(span.how) if span.how in DASHES else "node"
    told = f"{span.op} of {span.agent}, {seconds_text(span.end - span.start)}" + (f", {span.how}" if span.how else "")
    names = (span.agent, f"{span.agent.count(BATCH) + 1} agents") if BATCH in span.agent else (span.agent,)
    fits = next((name for name in names if len(name) * CHARACTER + 10 < width), "")
    # White on the grey of in place and map is too faint to read in the light theme.
    style = "in dark" if token in ("in-place", "map") else "in"
    name = f'<text class="{style}" x="{x + 6:.1f}" y="{y + 12:.1f}">{text(fits)}</text>' if fits else ""
    return (
        f'<g data-kv-span="{text(span.agent)}"><title>{text(told)}</title><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{BAR}" rx="2" style="fill:var(--kv-{token})"/>{name}</g>'
    )


def _step(until: float) -> float:
    """1, 2 or 5 times a power of ten: at most ten ticks."""
    power = 1e-3
    while True:
        for factor in (1, 2, 5):
            if until / (factor * power) <= 10:
                return factor * power
        power *= 10
