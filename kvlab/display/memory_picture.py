"""K/V memory of runs over time, as SVG: one stepped line a run, from the workers' samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvlab.display.html import Html, text
from kvlab.display.quantities import bytes_text, seconds_text
from kvlab.store.fold import World

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 150, 76, 110, 12, 26
TICKS = 3

Point = tuple[float, int]


def occupancy(world: World) -> list[Point]:
    """(seconds since the run began, bytes that all workers held), one point a sample."""
    began = world.run.get("started_ns")
    held: dict[str, int] = {}
    points: list[Point] = []
    for row in world.rows["memory"]:
        own = row["kv_unique_bytes"] if row["kv_unique_bytes"] is not None else row["nbytes"]
        held[row["worker"]] = own or 0
        points.append(((row["time_ns"] - (began if began is not None else row["time_ns"])) / 1e9, sum(held.values())))
    return points


def memory_svg(runs: Sequence[tuple[str, World]]) -> Html:
    """The picture, or an empty string if no run sampled its memory."""
    curves = [(label, world.flow, points) for label, world in runs if (points := occupancy(world))]
    if not curves:
        return Html("")
    ends = {label: world.wall_seconds for label, world in runs}
    until = max(max(points[-1][0], ends[label] or 0.0) for label, _, points in curves) or 1.0
    most = max(nbytes for _, _, points in curves for _, nbytes in points) or 1
    step = _step(most / TICKS)
    top = step * math.ceil(most / step)

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, seconds / until))

    def y(nbytes: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * nbytes / top

    parts = [f'<svg class="mem" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts.append("<title>K/V held by all workers over time (measured)</title>")
    for tick in range(math.ceil(most / step) + 1):
        at = y(tick * step)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{bytes_text(tick * step)}</text>')
    for seconds, anchor in ((0.0, "start"), (until, "end")):
        parts.append(
            f'<text x="{x(seconds):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{seconds_text(seconds)}</text>'
        )
    taken: list[float] = []
    for label, flow, points in curves:
        path = f"M{x(0.0):.1f} {y(0):.1f}" + "".join(f"H{x(at):.1f}V{y(nbytes):.1f}" for at, nbytes in points)
        end = x(ends[label] or points[-1][0])
        style = "text" if flow == "text" else "state"
        parts.append(f'<path class="{style}" d="{path}H{end:.1f}"/>')
        name_y = min(y(points[-1][1]) + 4, HEIGHT - BOTTOM - 4)
        while any(abs(name_y - other) < 13 for other in taken):
            name_y += 13
        taken.append(name_y)
        parts.append(f'<text x="{end + 6:.1f}" y="{name_y:.1f}">{text(label)}</text>')
    return Html("".join([*parts, "</svg>"]))


def _step(least: float) -> int:
    """The smallest power of two times 1 that is at least ``least`` bytes: binary units have round ticks there."""
    return 1 << max(0, math.ceil(math.log2(max(1.0, least))))
