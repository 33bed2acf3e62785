"""How fast a paced link is: what a person writes, the numbers behind it, and how it is said again. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.errors import InvalidInput

RATE_UNITS: Mapping[str, float] = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
TIME_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


@dataclass(frozen=True, slots=True)
class LinkPace:
    """Rate and latency of the link from one worker to another. A lab without one sends as fast as it can."""

    bytes_per_second: float
    latency_seconds: float = 0.0

    @property
    def bits_per_second(self) -> float:
        """The rate as networks are told apart."""
        return self.bytes_per_second * 8

    def __str__(self) -> str:
        """``120 Mbit/s, 2 ms``."""
        unit = max((unit for unit in RATE_UNITS if RATE_UNITS[unit] <= self.bits_per_second), key=RATE_UNITS.__getitem__,
                   default="bit/s")  # fmt: skip
        rate = f"{self.bits_per_second / RATE_UNITS[unit]:g} {unit}"
        if not self.latency_seconds:
            return rate
        short = self.latency_seconds < 1
        return f"{rate}, {self.latency_seconds * (1e3 if short else 1):g} {'ms' if short else 's'}"


def parse_pace(rate: str | float | None, latency: str | float | None) -> LinkPace | None:
    """The pace of links of ``rate`` (``"120 Mbit/s"``, or bit/s) and ``latency`` (``"2 ms"``, or seconds).

    None where there is no rate.

    Raises
    ------
    InvalidInput
        For what is no rate or latency, and for a latency without a rate.
    """
    if rate is None:
        if latency is not None:
            raise InvalidInput(
                f"link_latency={latency!r} without a link_rate",
                hint='name both: link_rate="1 Gbit/s", link_latency="2 ms"',
            )
        return None
    bits = _number("link_rate", rate, RATE_UNITS, '"120 Mbit/s", or a number of bit/s')
    if bits <= 0:
        raise InvalidInput(f"link_rate={rate!r}: nothing would ever arrive", hint='more than 0, e.g. "120 Mbit/s"')
    seconds = 0.0 if latency is None else _number("link_latency", latency, TIME_UNITS, '"2 ms", or a number of seconds')
    if seconds < 0:
        raise InvalidInput(f"link_latency={latency!r}: nothing arrives before it is sent", hint='e.g. "2 ms", or 0')
    return LinkPace(bits / 8, seconds)


def _number(name: str, given: str | float, units: Mapping[str, float], example: str) -> float:
    """``given`` in the unit that ``units`` says is 1. Units may be written in capitals or not."""
    hint = f"{example}; units: {', '.join(units)}"
    if isinstance(given, str):
        found = _QUANTITY.fullmatch(given)
        unit = next((unit for unit in units if found and unit.lower() == found[2].lower().replace("µ", "u")), None)
        if found is None:
            raise InvalidInput(f"{name}={given!r} is not a number with a unit", hint=hint)
        if unit is None:
            said = f"has the unit {found[2]!r}, which is unknown" if found[2] else "has no unit"
            raise InvalidInput(f"{name}={given!r} {said}", hint=hint)
        value = float(found[1]) * units[unit]
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        value = float(given)
    else:
        raise InvalidInput(f"{name}={given!r} is a {type(given).__name__}", hint=hint)
    if not math.isfinite(value):
        raise InvalidInput(f"{name}={given!r} is not a finite number", hint=hint)
    return value
