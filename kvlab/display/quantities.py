"""Numbers as people read them, each with its unit: ms below 100 ms, else s; KiB to GiB; spaced thousands."""

from __future__ import annotations

NONE = "–"
"""What stands for a number that is not known."""

THIN_SPACE = "\u202f"
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_MS_BELOW = 0.1


def count_text(n: int | None) -> str:
    """``1 024``."""
    return NONE if n is None else f"{n:,}".replace(",", THIN_SPACE)


def counted(n: int | None, noun: str, many: str | None = None) -> str:
    """``1 token``, ``1 024 tokens``; ``many`` is the plural where an s does not make it."""
    return f"{count_text(n)} {noun if n == 1 else many or f'{noun}s'}"


def seconds_text(seconds: float | None) -> str:
    """``8.0 ms``, ``39 ms``, ``0.12 s``, ``12.3 s``."""
    if seconds is None:
        return NONE
    size = abs(seconds)
    if size < _MS_BELOW:
        digits = 1 if 0 < size < _MS_BELOW / 10 else 0
        return f"{seconds * 1e3 + 0.0:.{digits}f} ms"  # a zero has no sign
    return f"{seconds:.{2 if size < 10 else 1}f} s"


def bytes_text(nbytes: int | None) -> str:
    """``0 B``, ``45.0 KiB``, ``47.3 MiB``, ``1.20 GiB``."""
    if nbytes is None:
        return NONE
    if abs(nbytes) < _KIB:
        return f"{nbytes} B"
    unit, size, digits = next(
        (unit for unit in (("KiB", _KIB, 1), ("MiB", _MIB, 1)) if abs(nbytes) < unit[1] * _KIB), ("GiB", _GIB, 2)
    )
    return f"{nbytes / size:,.{digits}f} {unit}".replace(",", THIN_SPACE)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Their quotient, or None if either is unknown or the denominator is 0."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def ratio_text(value: float | None) -> str:
    """``2.3×``."""
    if value is None:
        return NONE
    return f"{value:.2f}×" if value < 10 else f"{value:,.1f}×".replace(",", THIN_SPACE)
