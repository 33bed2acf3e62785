"""Colours, dashes and type of every picture and page. Hue means decision, and is always doubled by dash."""

from __future__ import annotations

from collections.abc import Iterable

Pair = tuple[str, str]

COLOURS: dict[str, Pair] = {
    "background": ("#FFFFFF", "#111417"),
    "ink": ("#1F2937", "#E6E9EE"),
    "muted": ("#5B6472", "#A4ADBA"),
    "rule": ("#E3E7EC", "#2A3038"),
    "grid": ("#EEF1F4", "#1D2228"),
    "lane": ("#F7F8FA", "#161A1F"),
    "node": ("#475569", "#B4BECB"),
    "evicted": ("#9AA3AF", "#6E7784"),
    "data": ("#B3BCC8", "#4A5460"),
    "state": ("#64748B", "#98A4B4"),
    "in-place": ("#8A94A3", "#7C8796"),
    "map": ("#8A94A3", "#7C8796"),
    "transfer": ("#0072B2", "#5BB4EC"),
    "recompute": ("#C2500A", "#F08A4B"),
    "hybrid": ("#A8488A", "#DE8FC4"),
    "corrected": ("#00805E", "#3CC79B"),
    "warning": ("#8A5A00", "#E9B44C"),
}
"""Token → (light, dark)."""

DASHES: dict[str, str] = {
    "in place": "2 3",
    "map": "2 3",
    "transfer": "8 3",
    "recompute": "4 3",
    "hybrid": "9 3 2 3",
    "corrected": "2 2",
}
"""Decision → dash of its lines, in px."""

STATE_DASH = "5 4"
"""A state edge that nobody has decided about yet."""

SHAPES: dict[str, str] = {"materialize": "●", "fork": "▲", "resume": "◆", "merge": "▼", "tool": "■"}
"""Operator → shape, in text as in pictures."""

SHAPE_OF = {"truncate": "fork", "transfer": "resume", "load": "materialize", "reason": "resume"}
"""Operators without a shape of their own."""


def shape_of(operator: str | None) -> str:
    """The operator whose shape stands for ``operator``; a resume's where there is none."""
    name = SHAPE_OF.get(operator or "", operator or "")
    return name if name in SHAPES else "resume"


FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'


def decision_token(how: str | None) -> str:
    """Token of a decision's colour; an unknown or open decision is plain state."""
    token = (how or "").replace(" ", "-")
    return token if how in DASHES else "state"


def variables(scope: str) -> str:
    """CSS that sets ``--kv-<token>`` under ``scope``: light, dark by preference, and as JupyterLab says."""
    light, dark = (";".join(f"--kv-{name}:{pair[side]}" for name, pair in COLOURS.items()) for side in (0, 1))
    light, dark = f"color-scheme:light;{light}", f"color-scheme:dark;{dark}"
    return (
        f"{scope}{{{light}}}"
        f"@media (prefers-color-scheme:dark){{{scope}{{{dark}}}}}"
        f'body[data-jp-theme-light="true"] {scope}{{{light}}}'
        f'body[data-jp-theme-light="false"] {scope}{{{dark}}}'
    )


def decision_classes(scope: str) -> str:
    """CSS classes ``.d-<token>`` that colour a line or a word by its decision."""
    tokens: Iterable[str] = ("state", *(decision_token(how) for how in DASHES))
    return "".join(f"{scope} .d-{token}{{stroke:var(--kv-{token});color:var(--kv-{token})}}" for token in tokens)
