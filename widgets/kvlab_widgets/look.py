"""Colours, dashes and rules of style of the views. The tokens are kvlab's; those that only views need are added."""

from __future__ import annotations

from pathlib import Path

from kvlab.display.look import COLOURS, DASHES, FONT, Pair, decision_token

TOKENS: dict[str, Pair] = {
    **COLOURS,
    "accent": ("#111827", "#FFFFFF"),
    "faint": ("#98A1AE", "#6E7784"),
    "planned": ("#D3DAE3", "#353D47"),
    "computed": ("#475569", "#C3CBD6"),
    "received": ("#8793A4", "#808C9B"),
    "mapped": ("#CBD3DD", "#48525F"),
}
"""Token → (light, dark)."""

DECISION_TOKENS: tuple[str, ...] = (*(decision_token(how) for how in DASHES), "state", "background")
"""Token of each code of a decision: the known ones, an unknown one, and what covers a line that was not followed."""

DECISION_DASHES: tuple[list[int], ...] = (
    *([int(length) for length in dash.split()] for dash in DASHES.values()),
    [5, 4],
    [],
)
"""Dash of the lines of each code."""

_FOLDER = Path(__file__).parent / "client"


def style(name: str) -> str:
    """The style sheet ``client/<name>.css``, with the font of all pictures."""
    return (_FOLDER / f"{name}.css").read_text(encoding="utf-8").replace("FONT", FONT)


def theme(side: int) -> dict[str, str]:
    """Token → colour: 0 for light, 1 for dark."""
    return {name: pair[side] for name, pair in TOKENS.items()}
