"""Rows on their way to a browser: one JSON text, and shortened and deflated where a whole run goes at once."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from kvlab_widgets.columns import restored, rounded, same_shown, shortened, significant

LIKE = (
    ("starts", "t0", "events", "t", "born", 1),
    ("spans", "t0", "starts", "t0", "start", 0),
    ("spans", "t1", "events", "t", "born", 1),
    ("spans", "worker", "starts", "worker", "start", 0),
    ("spans", "op", "starts", "op", "start", 0),
    ("spans", "agent", "starts", "agent", "start", 0),
    ("marks", "x", "nodes", "x", "node", 0),
    ("marks", "y", "nodes", "y", "node", 0),
    ("marks", "shape", "nodes", "shape", "node", 0),
    ("memory", "t", "events", "t", "born", 1),
    ("drops", "t", "events", "t", "born", 1),
    ("actuals", "predicted", "decisions", "predicted", "decision", 0),
)
"""Table and column that repeat a column of another table: of the row that a column of their own names, counted from so many."""

WITHIN = (("memory", "computed", "worker"), ("memory", "received", "worker"), ("memory", "mapped", "worker"))
"""Table and column that change little from one row to the next one with the same key."""

SUM = "="
"""Stands for seconds that are the sum of their terms."""

_HOW, _WORKER, _SECONDS, _TERMS, _BYTES = range(5)
"""Places in an alternative's row (:class:`kvlab_widgets.rows.RunRows`)."""

CHOSEN = (("predicted", _SECONDS), ("bytes", _BYTES))
"""Column of a decision that repeats what the row of its chosen alternative says."""


def as_json(batch: Mapping[str, Any]) -> str:
    """``batch`` as JSON, its reals rounded to :data:`kvlab_widgets.columns.SIGNIFICANT` digits."""
    return _json(_rounded(batch))


def packed(batch: Mapping[str, Any]) -> bytes:
    """``batch``, shortened and deflated (zlib): what a browser's ``DecompressionStream("deflate")`` reads."""
    told = _rounded(batch)
    told["tables"] = _shortened(told["tables"])
    return zlib.compress(_json(told).encode(), 9)


def unpacked(packed: bytes) -> dict[str, Any]:
    """The inverse of :func:`packed`, as the browser does it."""
    batch = dict(json.loads(zlib.decompress(packed)))
    batch["tables"] = _Tables(batch["tables"]).whole()
    return batch


def _rounded(batch: Mapping[str, Any]) -> dict[str, Any]:
    """``batch`` with rounded reals; seconds are the sum of their rounded terms where nobody sees the difference."""
    told: dict[str, Any] = rounded(batch)
    tables = told.get("tables") or {}  # a sign of life has none
    if "actuals" in tables:
        pairs = zip(tables["actuals"]["seconds"], tables["actuals"]["terms"], strict=True)
        tables["actuals"]["seconds"] = [_as_sum(seconds, terms) for seconds, terms in pairs]
    for row in (row for rows in tables.get("decisions", {}).get("alternatives", ()) for row in rows):
        row[_SECONDS] = _as_sum(row[_SECONDS], row[_TERMS])
    return told


def _as_sum(seconds: float | None, terms: Mapping[str, float]) -> float | None:
    if seconds is None or not terms:
        return seconds
    return total if same_shown(total := _sum(terms), seconds) else seconds


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _shortened(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    short: dict[str, dict[str, Any]] = {name: {} for name in tables}
    for table, column, other, theirs, key, first in LIKE:
        mine, found = tables.get(table, {}), tables.get(other, {}).get(theirs, ())
        if mine and all(
            0 <= row - first < len(found) and found[row - first] == value
            for row, value in zip(mine[key], mine[column], strict=True)
        ):
            short[table][column] = {"like": [other, theirs, key, first]}
    for table, column, key in WITHIN:
        if table in tables and set(map(type, tables[table][column])) == {int}:
            more = _since(tables[table][column], tables[table][key])
            short[table][column] = {"within": key, "more": shortened(more)}
    decisions = tables.get("decisions", {})
    for column, place in CHOSEN if decisions else ():
        if [_chosen(decisions, row, place) for row in range(len(decisions["chosen"]))] == decisions[column]:
            short["decisions"][column] = {"chosen": place}
    for name, columns in tables.items():
        for column, values in columns.items():
            short[name].setdefault(column, shortened(_without_sums(name, column, values, columns)))
    return short


def _since(values: Sequence[int], keys: Sequence[int]) -> list[int]:
    last: dict[int, int] = {}
    more = []
    for value, key in zip(values, keys, strict=True):
        more.append(value - last.get(key, 0))
        last[key] = value
    return more


def _chosen(decisions: Mapping[str, Any], row: int, place: int) -> Any:
    wanted = [decisions["chosen"][row], decisions["worker"][row]]
    return next((one[place] for one in decisions["alternatives"][row] if one[:_SECONDS] == wanted), None)


def _without_sums(table: str, column: str, values: list[Any], columns: Mapping[str, Any]) -> list[Any]:
    if (table, column) == ("actuals", "seconds"):
        return [_sum_or(seconds, terms) for seconds, terms in zip(values, columns["terms"], strict=True)]
    if (table, column) == ("decisions", "alternatives"):
        return [
            [[*row[:_SECONDS], _sum_or(row[_SECONDS], row[_TERMS]), *row[_TERMS:]] for row in rows] for rows in values
        ]
    return values


def _sum_or(seconds: float | None, terms: Mapping[str, float]) -> Any:
    return SUM if seconds is not None and terms and seconds == _sum(terms) else seconds


def _sum(terms: Mapping[str, float]) -> float:
    """In the order of the terms, so that it is the same double everywhere."""
    total = 0.0
    for value in terms.values():
        total += value
    return significant(total)


class _Tables:
    """Makes columns whole in whatever order they need each other."""

    def __init__(self, short: Mapping[str, Mapping[str, Any]]) -> None:
        self._short = short
        self._made: dict[str, dict[str, list[Any]]] = {name: {} for name in short}

    def whole(self) -> dict[str, dict[str, list[Any]]]:
        return {name: {column: self._column(name, column) for column in short} for name, short in self._short.items()}

    def _column(self, table: str, column: str) -> list[Any]:
        if column not in self._made[table]:
            self._made[table][column] = self._with_sums(
                table, column, self._restored(table, self._short[table][column])
            )
        return self._made[table][column]

    def _restored(self, table: str, told: Any) -> list[Any]:
        if "like" in told:
            other, theirs, key, first = told["like"]
            values = self._column(other, theirs)
            return [values[row - first] for row in self._column(table, key)]
        if "within" in told:
            last: dict[int, int] = {}
            found = []
            for key, more in zip(self._column(table, told["within"]), restored(told["more"]), strict=True):
                last[key] = last.get(key, 0) + more
                found.append(last[key])
            return found
        if "chosen" in told:
            decisions = {name: self._column(table, name) for name in ("chosen", "worker", "alternatives")}
            return [_chosen(decisions, row, told["chosen"]) for row in range(len(decisions["chosen"]))]
        return restored(told)

    def _with_sums(self, table: str, column: str, values: list[Any]) -> list[Any]:
        if (table, column) == ("actuals", "seconds"):
            terms = self._column(table, "terms")
            return [_sum(terms[i]) if seconds == SUM else seconds for i, seconds in enumerate(values)]
        for row in (row for rows in values for row in rows) if column == "alternatives" else ():
            row[_SECONDS] = _sum(row[_TERMS]) if row[_SECONDS] == SUM else row[_SECONDS]
        return values
