"""The question of a state edge as one inequality with its values: what was chosen against the best of the other roads.

From AAFLOW+: hand the state on if moving it, feeding what is new and the overhead of both take less than prefilling the
text again, T_transfer + T_resume + Ω_state < T_prefill + Ω_text. The chosen road stands on the left, whichever it is.
Waiting for the same busy worker is on both sides and is left out of both; where the workers differ it is on both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvlab.display.drawing import actual_terms_of, alternatives_of
from kvlab.display.quantities import seconds_text
from kvlab.store.fold import Row, World

KEEPS_STATE = ("in place", "map", "transfer", "restore")
STATE = "T_transfer + T_resume + Ω_state"
TEXT = "T_prefill + Ω_text"
HYBRID = "max(T_transfer, T_prefill) + T_resume + Ω_hybrid"
WAIT = "T_wait + "


def inequality_formula(row: Row) -> str:
    """The inequality of an edge in letters; empty where there is nothing to compare."""
    pair = _pair(row)
    if pair is None:
        return ""
    waits = WAIT if _waits(*pair) else ""
    return " < ".join(waits + _letters(one["how"]) for one in pair)


def inequalities(row: Row) -> list[str]:
    """The inequality of an edge with its predicted values, and with measured ones as far as there are any."""
    pair = _pair(row)
    if pair is None:
        return []
    waits, apart = _waits(*pair), pair[0]["worker"] != pair[1]["worker"]
    sides = [_values(one["how"], one.get("terms") or {}, waits=waits) for one in pair]
    sign = "<" if sum(sides[0]) < sum(sides[1]) else "≥"
    told = [f"{_name(one, apart=apart)} {_side(side)}" for one, side in zip(pair, sides, strict=True)]
    measured = _measured(row, *pair)
    return [f"predicted: {told[0]} {sign} {told[1]}", *([measured] if measured else [])]


def _pair(row: Row) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The chosen road, and the one that it is measured by: the best of those that do the other thing."""
    able = [one for one in alternatives_of(row) if not one.get("excluded") and one.get("seconds") is not None]
    chosen = next((one for one in able if (one["how"], one["worker"]) == (row["chosen"], row["worker"])), None)
    if chosen is None:
        return None
    others = [one for one in able if one is not chosen and _does_the_other_thing(one["how"], chosen["how"])]
    rival = min(others, key=lambda one: float(one["seconds"]), default=None)
    return (chosen, rival) if rival is not None else None


def _does_the_other_thing(one: str, chosen: str) -> bool:
    return "hybrid" in (one, chosen) or (one == "recompute") == (chosen in KEEPS_STATE)


def _measured(row: Row, chosen: Row, rival: Row) -> str:
    audited = [road for road in (json.loads(row["audit"]) if row["audit"] else []) if road["seconds"] is not None]
    ours = next((road for road in audited if (road["how"], road["worker"]) == (row["chosen"], row["worker"])), None)
    best = min((road for road in audited if road is not ours), key=lambda road: float(road["seconds"]), default=None)
    if ours is not None and best is not None:
        sign, apart = "<" if ours["seconds"] < best["seconds"] else "≥", ours["worker"] != best["worker"]
        told = [f"{_name(road, apart=apart)} {seconds_text(road['seconds'])}" for road in (ours, best)]
        return f"measured in the audit: {told[0]} {sign} {told[1]}"
    how = row["actual_how"]
    if how not in (*KEEPS_STATE, "recompute", "hybrid"):
        return ""
    side = _side(_values(how, actual_terms_of(row), waits=_waits(chosen, rival)))
    other = rival if how == chosen["how"] else chosen
    return f"measured: {how} {side}; what {other['how']} would have taken was not measured"


def _letters(how: str) -> str:
    return STATE if how in KEEPS_STATE else HYBRID if how == "hybrid" else TEXT


def _name(road: Mapping[str, Any], *, apart: bool) -> str:
    return f"{road['how']} on {road['worker']}" if apart else str(road["how"])


def _waits(chosen: Mapping[str, Any], rival: Mapping[str, Any]) -> bool:
    """Whether waiting is told: where both wait for the same worker it says nothing."""
    waiting = [(one.get("terms") or {}).get("queue", 0.0) for one in (chosen, rival)]
    return chosen["worker"] != rival["worker"] and any(waiting)


def _values(how: str, terms: Mapping[str, float], *, waits: bool) -> tuple[float, ...]:
    """The values of :func:`_letters`. What passes while something else is waited for is counted once, by ``overlap``."""
    of = {name: terms.get(name, 0.0) for name in ("queue", "prefill", "resume", "overhead")}
    moving = terms.get("transfer", 0.0) + terms.get("link queue", 0.0) + terms.get("overlap", 0.0)
    wait = (of["queue"],) if waits else ()
    if how == "recompute":
        return (*wait, of["prefill"] + of["resume"], of["overhead"])
    return (*wait, moving + of["prefill"], of["resume"], of["overhead"])


def _side(values: tuple[float, ...]) -> str:
    return f"{' + '.join(map(seconds_text, values))} = {seconds_text(sum(values))}"


def flow_line(world: World) -> str:
    """T = k·T_prefill + Σ T_decode + Σ Ω of a run's agents: seconds of work, measured."""
    turns = world.rows["turns"]
    if not turns:
        return ""
    prefill, decode, overhead = (
        sum(row[name] or 0.0 for row in turns) for name in ("prefill_seconds", "decode_seconds", "overhead_seconds")
    )
    flow = world.run.get("flow", "")
    parts = f"{len(turns)} · {seconds_text(prefill / len(turns))} + {seconds_text(decode)} + {seconds_text(overhead)}"
    return (
        f"T_{flow} = k·T_prefill + Σ T_decode + Σ Ω = {parts} = {seconds_text(prefill + decode + overhead)} (measured)"
    )
