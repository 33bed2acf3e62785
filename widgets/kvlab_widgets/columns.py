"""Columns of a table, written shorter: what follows from other values is left out.

The result is JSON again, and deflating it does the rest. A column is a list, or an object that says how to make one:

- ``{delta, by}``: whole numbers as differences, each in units of ``by``
- ``{units, digits}``: reals as whole numbers, with so many decimal digits behind the point
- ``{written, digits}``: the same, as texts
- ``{of, back}``: values of ``of`` in order where ``back`` is 0, else the one so many before the next
- ``{texts, which, numbers}``: texts whose numbers are columns of their own
- ``{lengths, rows}`` or ``{lengths, values}``: lists, of rows of one length or of plain values
- ``{keys, which, values}``: mappings of a few shapes, a column for each key

``client/columns.mjs`` makes lists of it again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from kvlab.display.quantities import seconds_text

SIGNIFICANT = 6
"""Digits kept of a measured number: more than any clock here has, and than are shown."""

NEAR = 64
"""How far ``back`` may lie: farther is rare, and small numbers deflate well."""

DIGITS = 12
"""Behind the point, at most."""

LONG = 16
"""Characters of a number that a double may not hold."""

EXACT = 2.0**53
"""Whole numbers below it are doubles, here and in a browser."""

HOLE = "\0"
_NUMBER = re.compile(r"\d+(?:[.\u202f]\d+)*")


def rounded(value: Any) -> Any:
    """``value`` with all its reals rounded to :data:`SIGNIFICANT` digits, where that cannot be seen."""
    if isinstance(value, float):
        value += 0.0  # a zero has no sign, which whole numbers could not keep
        near = significant(value)
        return near if same_shown(near, value) else value
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return value


def same_shown(near: float, value: float) -> bool:
    """Whether both are shown alike: a number just beside the middle between two that are shown must not be rounded twice."""
    return seconds_text(near) == seconds_text(value) and f"{near:.0%}" == f"{value:.0%}"


def significant(value: float) -> float:
    """``value`` rounded to :data:`SIGNIFICANT` digits."""
    return float(f"{value:.{SIGNIFICANT}g}")


def shortened(column: Sequence[Any]) -> Any:
    """``column``, written shorter where a rule fits. Its values are rounded already."""
    kinds = set(map(type, column))
    for fitting, rule in _RULES:
        if kinds and kinds <= fitting:
            return rule(column)
    return _recalled(column, list)


def restored(told: Any) -> list[Any]:
    """The inverse of :func:`shortened`."""
    if isinstance(told, list):
        return told
    if "delta" in told:
        return [told["by"] * value for value in accumulate(told["delta"])]
    if "units" in told:
        return [value / 10 ** told["digits"] for value in restored(told["units"])]
    if "written" in told:
        return [_written(unit, told["digits"]) for unit in restored(told["written"])]
    if "of" in told:
        found, new = restored(told["of"]), 0
        made = []
        for back in restored(told["back"]):
            made.append(found[new - back])
            new += not back
        return made
    which = iter(restored(told["which"] if "which" in told else told["lengths"]))
    if "texts" in told:
        numbers = [[iter(restored(slot)) for slot in slots] for slots in told["numbers"]]
        parts = [text.split(HOLE) for text in told["texts"]]
        return ["".join(chain(*zip(parts[i], [*(next(slot) for slot in numbers[i]), ""], strict=True))) for i in which]
    if "keys" in told:
        values = {key: iter(restored(column)) for key, column in told["values"].items()}
        return [{key: next(values[key]) for key in told["keys"][i]} for i in which]
    if "rows" in told:
        rows = iter(zip(*map(restored, told["rows"]), strict=True))
        return [[list(next(rows)) for _ in range(n)] for n in which]
    plain = iter(restored(told["values"]))
    return [[next(plain) for _ in range(n)] for n in which]


def _recalled(column: Sequence[Any], rest: Callable[[Sequence[Any]], Any]) -> Any:
    """Values that were there a short while ago are told by how long ago; ``rest`` shortens the others."""
    new: list[Any] = []
    back: list[int] = []
    at: dict[Any, int] = {}
    for value in column:
        seen = at.get((type(value), value), -NEAR - 1)
        if len(new) - seen > NEAR:
            at[type(value), value] = len(new)
            back.append(0)
            new.append(value)
        else:
            back.append(len(new) - seen)
    return {"of": rest(new), "back": back} if 2 * len(new) < len(column) else rest(column)


def _whole(column: Sequence[int]) -> Any:
    return _recalled(column, _differences)


def _differences(column: Sequence[int]) -> Any:
    unit = math.gcd(*column) or 1
    units = [value // unit for value in column]
    differences = [b - a for a, b in pairwise([0, *units])]
    runs_on = 2 * sum(map(abs, differences)) < sum(map(abs, units))
    return {"delta": differences, "by": unit} if runs_on or unit > 1 else list(column)


def _reals(column: Sequence[float]) -> Any:
    digits = max(len(f"{value:.{DIGITS}f}".rstrip("0").partition(".")[2]) for value in column)
    if any(abs(value) * 10**digits >= EXACT for value in column):
        return _recalled(column, list)
    units = [round(value * 10**digits) for value in column]
    if all(unit / 10**digits == value for unit, value in zip(units, column, strict=True)):
        return {"units": _whole(units), "digits": digits}
    return _recalled(column, list)


def _texts(column: Sequence[str]) -> Any:
    if any(HOLE in text for text in column):
        return _recalled(column, list)
    known: dict[str, int] = {}
    which: list[int] = []
    numbers: list[list[list[str]]] = []
    for text in column:
        found = _NUMBER.findall(text)
        kind = known.setdefault(_NUMBER.sub(HOLE, text), len(known))
        if kind == len(numbers):
            numbers.append([[] for _ in found])
        which.append(kind)
        for slot, number in zip(numbers[kind], found, strict=True):
            slot.append(number)
    if 4 * len(known) > len(column):
        return _recalled(column, list)
    return {"texts": list(known), "which": which, "numbers": [list(map(_numbers, slots)) for slots in numbers]}


def _numbers(slot: Sequence[str]) -> Any:
    """Numbers of a text: as whole numbers where all have as many digits behind the point, else as they are written."""
    digits = len(slot[0].partition(".")[2])
    if all(len(one) < LONG and one.isascii() for one in slot):
        units = [int(one.replace(".", "")) for one in slot]
        if all(_written(unit, digits) == one for unit, one in zip(units, slot, strict=True)):
            return {"written": _whole(units), "digits": digits}
    return _recalled(slot, list)


def _written(unit: int, digits: int) -> str:
    return f"{unit / 10**digits:.{digits}f}"


def _lists(column: Sequence[Sequence[Any]]) -> Any:
    lengths, flat = _whole([len(one) for one in column]), list(chain.from_iterable(column))
    if flat and all(isinstance(one, list) for one in flat) and len(set(map(len, flat))) == 1:
        return {"lengths": lengths, "rows": [shortened(part) for part in zip(*flat, strict=True)]}
    return {"lengths": lengths, "values": shortened(flat)}


def _mappings(column: Sequence[Mapping[str, Any]]) -> Any:
    shapes: dict[tuple[str, ...], int] = {}
    which = [shapes.setdefault(tuple(one), len(shapes)) for one in column]
    values: dict[str, list[Any]] = {}
    for key, value in _items(column):
        values.setdefault(key, []).append(value)
    return {"keys": [list(shape) for shape in shapes], "which": which,
            "values": {key: shortened(found) for key, found in values.items()}}  # fmt: skip


def _items(column: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, Any]]:
    return chain.from_iterable(one.items() for one in column)


_RULES: tuple[tuple[set[type], Callable[[Any], Any]], ...] = (
    ({int}, _whole),
    ({int, float}, _reals),
    ({str}, _texts),
    ({list}, _lists),
    ({dict}, _mappings),
)
