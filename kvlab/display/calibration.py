"""A calibration as tables for a terminal: curves, links, and the rate at which moving and computing cost the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.cost.model import CostModel, Link
from kvlab.display.quantities import bytes_text, counted, seconds_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

LENGTHS = (128, 512, 2048)


def calibration_tables(cost: CostModel, model: str, bytes_per_token: int, pace: str = "") -> Group:
    """What was measured, and what follows from it. Predicted seconds are marked so."""
    from rich.console import Group
    from rich.text import Text

    stamp = f"{model}, measured {cost.measured_at} with {cost.prefill.threads} threads"
    paced = f"Links are paced to {pace}." if pace else ""
    return Group(
        Text(stamp, style="bold"), _compute(cost, bytes_per_token), _links(cost), *([Text(paced)] if paced else [])
    )


def _compute(cost: CostModel, bytes_per_token: int) -> Table:
    table = _table("state", "bytes", "prefill", "decode a step", "break-even link")
    for n_tokens in LENGTHS:
        even = cost.break_even_bytes_per_second(n_tokens, bytes_per_token)
        table.add_row(
            counted(n_tokens, "token"),
            bytes_text(n_tokens * bytes_per_token),
            seconds_text(cost.prefill.seconds(n_tokens)),
            seconds_text(cost.decode.seconds(1, 1, n_tokens)),
            f"{even * 8 / 1e6:.0f} Mbit/s" if even else "none: moving is always faster",
        )
    table.caption = "predicted from the fitted curves; below the break-even link, computing again is faster"
    return table


def _links(cost: CostModel) -> Table:
    table = _table("link", "rate", "first byte", "new connection")
    for name, link in {**cost.links, "any other pair": cost.frames}.items():
        table.add_row(name, _rate(link), seconds_text(link.t0), f"+ {seconds_text(link.cold)}")
    table.add_row("empty task", "", seconds_text(cost.task_seconds), "")
    table.add_row("copying in memory", _rate(Link(0.0, cost.copy_bytes_per_second)), "", "")
    table.caption = "measured; with a checksum at both ends"
    return table


def _table(*headers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, caption_justify="left", pad_edge=False)
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index == 0 else "right")
    return table


def _rate(link: Link) -> str:
    bits = link.bytes_per_second * 8
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.0f} Mbit/s"
