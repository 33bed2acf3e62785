"""Small pieces of HTML. Whatever is not :class:`Html` is escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from kvlab.display.look import DASHES, FONT, decision_classes, decision_token, variables
from kvlab.display.quantities import NONE


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """``value`` as HTML: escaped, unless it is HTML already; None is a dash."""
    if isinstance(value, Html):
        return value
    return Html(NONE if value is None else escape(str(value)))


def html_table(rows: Iterable[Sequence[object]], headers: Sequence[object], numeric: Collection[int] = ()) -> Html:
    """A plain table.

    Parameters
    ----------
    rows
        Cells; escaped unless :class:`Html`.
    headers
        Empty: the table has no head.
    numeric
        Columns whose cells are aligned to the right.
    """
    cells = "".join(f"<th{_side(index, numeric)}>{text(cell)}</th>" for index, cell in enumerate(headers))
    head = f"<thead><tr>{cells}</tr></thead>" if cells else ""
    body = "".join(
        "<tr>" + "".join(f"<td{_side(index, numeric)}>{text(cell)}</td>" for index, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return Html(f'<table class="kv-table">{head}<tbody>{body}</tbody></table>')


def decision_html(how: str | None, *, chosen: bool = False) -> Html:
    """A decision with its dash and colour; bold with a tick if it was chosen."""
    if how is None:
        return Html(NONE)
    token = decision_token(how)
    dash = DASHES.get(how, "")
    name = escape(f"≈ {how}" if how == "corrected" else how)
    line = (
        f'<svg width="26" height="8" aria-hidden="true"><path class="d-{token}" stroke-width="2" fill="none" '
        f'stroke-dasharray="{dash}" d="M0 4h26"/></svg>'
    )
    return Html(f'<span class="kv-how">{line}{f"<b>{name} ✓</b>" if chosen else name}</span>')


def cell_html(body: str) -> Html:
    """``body``, which is HTML already, styled for a notebook's cell, light and dark."""
    return Html(f'<div class="kv"><style>{style(".kv")}</style>{body}</div>')


def style(scope: str = ".kv") -> str:
    """CSS of everything in this package but the pictures, which bring their own."""
    rules = (
        f"{{s}}{{color:var(--kv-ink);font:13px/20px {FONT};font-variant-numeric:tabular-nums}}"
        "{s} h1{font-size:20px;line-height:28px;font-weight:600;margin:0 0 4px}"
        "{s} h2{font-size:14px;font-weight:600;margin:36px 0 10px}"
        "{s} .muted,{s} .kv-table th,{s} dd{color:var(--kv-muted)}{s} .warning{color:var(--kv-warning)}"
        "{s} .kv-table{border-collapse:collapse;margin:0;font-size:12.5px;color:inherit}"
        "{s} .kv-table th,{s} .kv-table td{padding:4px 14px 4px 0;text-align:left;vertical-align:top;"
        "border:0;border-bottom:1px solid var(--kv-rule);background:none}"
        "{s} .kv-table th{font-weight:500;font-size:11.5px;vertical-align:bottom}"
        "{s} .kv-table .num{text-align:right;white-space:nowrap}"
        "{s} .kv-how{white-space:nowrap}{s} .kv-how svg{margin-right:7px;vertical-align:1px}"
    )
    return variables(scope) + rules.replace("{s}", scope) + decision_classes(scope)


def _side(index: int, numeric: Collection[int]) -> str:
    return ' class="num"' if index in numeric else ""
