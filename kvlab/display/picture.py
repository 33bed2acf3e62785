"""A drawing as SVG: lanes are agents, x is layer, data edges solid, state edges dashed."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape

from kvlab.display.drawing import Drawing, Line, Mark
from kvlab.display.look import DASHES, FONT, SHAPES, STATE_DASH, decision_classes, decision_token, variables

LANE, LANE_DENSE, DENSE_FROM = 44, 30, 12
COLUMN, COLUMN_DENSE, COLUMNS_FROM = 132, 72, 9
HEAD, MARGIN, RADIUS = 44, 18, 6.0
CHARACTER = 6.8
"""Mean advance of the 12 px system font, in px; only label columns depend on it."""

THIN, THICK = 1.3, 3.0
"""Width of a state edge without bytes, and of the one with most, in px."""

_STYLE = (
    ".kv-pic text{font:12px/18px FONT;fill:var(--kv-ink);font-variant-numeric:tabular-nums}"
    ".kv-pic .title{font-size:13px;font-weight:600}.kv-pic .m,.kv-pic .cap{fill:var(--kv-muted);font-size:11px}"
    ".kv-pic .cap{font-size:10.5px}.kv-pic .w{fill:var(--kv-warning);font-size:11px}"
    ".kv-pic .bg{fill:var(--kv-background)}.kv-pic .lane{fill:var(--kv-lane)}.kv-pic .rule{stroke:var(--kv-rule)}"
    ".kv-pic .n{fill:var(--kv-node);stroke:var(--kv-background);stroke-width:1.5}"
    ".kv-pic .n.hollow{fill:var(--kv-background);stroke:var(--kv-evicted)}"
    ".kv-pic path{fill:none}.kv-pic .data{stroke:var(--kv-data);stroke-width:1}"
    ".kv-pic .tok{font-size:10.5px;paint-order:stroke;stroke:var(--kv-background);stroke-width:4px;"
    "stroke-linejoin:round;fill:var(--kv-muted)}"
).replace("FONT", FONT.replace('"', "'"))


_Item = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where lanes and layers are, in px."""

    left: float
    column: float
    lane: float
    lanes: dict[str, int]
    width: float

    def x(self, mark: Mark) -> float:
        return self.left + self.column * (mark.layer + 0.5)

    def y(self, lane: str) -> float:
        return HEAD + self.lane * (self.lanes[lane] + 0.5)

    @property
    def bottom(self) -> float:
        return HEAD + self.lane * len(self.lanes)


def svg(drawing: Drawing, *, decisions: bool) -> str:
    """The picture. It carries its own style, light and dark, and asks for nothing from outside.

    Parameters
    ----------
    decisions
        Whether the legend tells decisions (a run) or only data and state edges (a graph).
    """
    legend = _legend_items(drawing, decisions=decisions)
    frame = _frame(drawing, len(drawing.name) * 7.5 + sum(_item_width(item) for item in legend) + 3 * MARGIN)
    room = int((frame.width - 2 * MARGIN) / 5.6)
    below = [("m", row) for row in textwrap.wrap(drawing.note, room)]
    below += [("w", row) for text in drawing.remarks for row in textwrap.wrap(f"⚠ {text}", room)]
    height = frame.bottom + 14 + 17 * len(below) + (6 if below else 0)
    at = {mark.id: mark for mark in drawing.marks}
    most = max((line.nbytes for line in drawing.lines), default=0)
    lines = sorted(drawing.lines, key=lambda line: line.kind == "state")
    parts = [
        f'<svg class="kv-pic" xmlns="http://www.w3.org/2000/svg" {_size(frame.width, height)} role="img" ',
        f'style="display:block;max-width:100%;height:auto;margin-bottom:10px" data-kv-graph="{escape(drawing.name)}">',
        f"<title>State graph of {escape(drawing.name)}</title>",
        f"<style>{variables('.kv-pic')}{_STYLE}{decision_classes('.kv-pic')}</style>",
        f'<rect class="bg" width="{frame.width:.0f}" height="{height:.0f}" rx="6"/>',
        f'<text class="title" x="{MARGIN}" y="25">{escape(drawing.name)}</text>',
        _legend(legend, frame.width),
        *(_lane(name, frame) for name in drawing.lanes),
        *(_line(line, at, frame, drawing, most) for line in lines),
        *(_token_label(line, at, frame, drawing) for line in lines if line.label),
        *(_mark(mark, frame) for mark in drawing.marks),
        *(
            f'<text class="{style}" x="{MARGIN}" y="{frame.bottom + 24 + 17 * index:.0f}">{escape(text)}</text>'
            for index, (style, text) in enumerate(below)
        ),
        "</svg>",
    ]
    return "".join(parts)


def _size(width: float, height: float) -> str:
    return f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'


def _frame(drawing: Drawing, head_width: float) -> _Frame:
    n_layers = 1 + max((int(mark.layer) for mark in drawing.marks), default=0)
    lanes = {lane: index for index, lane in enumerate(drawing.lanes)}
    left = MARGIN + min(200.0, max((len(_short(lane)) for lane in lanes), default=0) * CHARACTER) + 14
    least = COLUMN if n_layers < COLUMNS_FROM else COLUMN_DENSE
    width = max(620.0, head_width, left + least * n_layers + MARGIN)
    column = (width - left - MARGIN) / n_layers
    return _Frame(left, column, LANE if len(lanes) < DENSE_FROM else LANE_DENSE, lanes, width)


def _lane(name: str, frame: _Frame) -> str:
    index, y = frame.lanes[name], frame.y(name)
    band = ""
    if index % 2 == 0:
        band = (
            f'<rect class="lane" x="{frame.left - 6:.1f}" y="{y - frame.lane / 2:.1f}" '
            f'width="{frame.width - frame.left - MARGIN + 12:.1f}" height="{frame.lane}" rx="4"/>'
        )
    return f'{band}<text x="{frame.left - 16:.1f}" y="{y + 4:.1f}" text-anchor="end">{escape(_short(name))}</text>'


def _route(
    line: Line, at: dict[str, Mark], frame: _Frame, drawing: Drawing
) -> tuple[float, float, float, float, float]:
    """Start, end, and the x where the curve leaves the source's lane."""
    a, b = at[line.source], at[line.target]
    x1, y1, x2, y2 = frame.x(a), frame.y(a.lane), frame.x(b), frame.y(b.lane)
    blocked = any(mark.lane == a.lane and a.layer < mark.layer < b.layer for mark in drawing.marks)
    leave = x1 if blocked or y1 == y2 else max(x1, x2 - frame.column * (1 - (a.layer % 1)))
    return x1, y1, x2, y2, leave


def _line(line: Line, at: dict[str, Mark], frame: _Frame, drawing: Drawing, most: int) -> str:
    x1, y1, x2, y2, leave = _route(line, at, frame, drawing)
    middle = (leave + x2) / 2
    path = f"M{x1:.1f} {y1:.1f}" + (f"H{leave:.1f}" if leave > x1 else "")
    path += f"H{x2:.1f}" if y1 == y2 else f"C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    title = f"<title>{escape(line.title)}</title>" if line.title else ""
    ends = f'data-kv-edge="{escape(line.source)}→{escape(line.target)}"'
    if line.kind == "data":
        return f'<path class="data" {ends} d="{path}">{title}</path>'
    width = THIN + (THICK - THIN) * (line.nbytes / most if most else 0)
    dash = DASHES.get(line.how or "", STATE_DASH)
    how = f' data-kv-how="{escape(line.how)}"' if line.how else ""
    stroke = f'class="d-{decision_token(line.how)}" stroke-width="{width:.2f}" stroke-dasharray="{dash}"'
    return f'<path {stroke} {ends}{how} d="{path}">{title}</path>'


def _token_label(line: Line, at: dict[str, Mark], frame: _Frame, drawing: Drawing) -> str:
    """On the straight part if there is one, else where the curve arrives; half way where several states merge."""
    x1, y1, x2, y2, leave = _route(line, at, frame, drawing)
    arriving = sum(other.kind == "state" and other.target == line.target for other in drawing.lines)
    anchor = "middle"
    if y1 == y2:
        x, y = (x1 + x2) / 2, y1 - 5
    elif leave - x1 > frame.column / 2:
        x, y = (x1 + leave) / 2, y1 - 5
    elif arriving == 1:
        x, y, anchor = x2 - 12, y2 + (17 if y1 < y2 else -8), "end"
    else:
        x, y = (leave + x2) / 2, (y1 + y2) / 2
    return f'<text class="tok" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(line.label)}</text>'


def _mark(mark: Mark, frame: _Frame) -> str:
    x, y = frame.x(mark), frame.y(mark.lane)
    caption = ""
    if mark.caption:
        caption = f'<text class="cap" x="{x - 8:.1f}" y="{y + 17:.1f}">{escape(mark.caption)}</text>'
    return (
        f'<g data-kv-node="{escape(mark.id)}"><title>{escape(mark.title)}</title>'
        f"{_shape(mark.shape, x, y, hollow=mark.hollow)}{caption}</g>"
    )


def _shape(shape: str, x: float, y: float, *, hollow: bool = False) -> str:
    style = 'class="n hollow"' if hollow else 'class="n"'
    r = RADIUS
    if shape == "materialize":
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    points = {
        "fork": ((0, -r), (r, r * 0.8), (-r, r * 0.8)),
        "merge": ((0, r), (r, -r * 0.8), (-r, -r * 0.8)),
        "tool": ((-r * 0.9, -r * 0.9), (r * 0.9, -r * 0.9), (r * 0.9, r * 0.9), (-r * 0.9, r * 0.9)),
    }.get(shape, ((0, -r * 1.2), (r * 1.2, 0), (0, r * 1.2), (-r * 1.2, 0)))
    listed = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points)
    return f'<polygon {style} points="{listed}"/>'


def _legend_items(drawing: Drawing, *, decisions: bool) -> list[_Item]:
    """Only what occurs: (kind, token, text)."""
    items = [("shape", shape, shape) for shape in SHAPES if any(mark.shape == shape for mark in drawing.marks)]
    if any(line.kind == "data" for line in drawing.lines):
        items.append(("data", "", "text"))
    if any(line.kind == "state" and line.how is None and line.label for line in drawing.lines):
        items.append(("state", "", "state, undecided" if decisions else "state"))
    hows = [how for how in DASHES if any(line.how == how for line in drawing.lines)]
    return items + [("how", how, f"≈ {how}" if how == "corrected" else how) for how in hows]


def _item_width(item: _Item) -> float:
    return len(item[2]) * 6.0 + (34 if item[0] == "shape" else 48)


def _legend(items: list[_Item], width: float) -> str:
    x = width - MARGIN - sum(_item_width(item) for item in items) + 14
    parts = []
    for item in items:
        kind, token, text = item
        if kind == "shape":
            parts.append(_shape(token, x + 6, 21))
            start = x + 17
        else:
            dash = {"data": "", "state": STATE_DASH}.get(kind, DASHES.get(token, ""))
            style = "data" if kind == "data" else f"d-{decision_token(token or None)}"
            parts.append(f'<path class="{style}" stroke-width="1.6" stroke-dasharray="{dash}" d="M{x:.1f} 21h25"/>')
            start = x + 31
        parts.append(f'<text class="m" x="{start:.1f}" y="25">{escape(text)}</text>')
        x += _item_width(item)
    return "".join(parts)


def _short(lane: str) -> str:
    return lane if len(lane) <= 26 else f"{lane[:25]}…"
