"""The question of a state edge as one inequality with its values: T_transfer + T_resume + Ω_state < T_prefill + Ω_text.

From AAFLOW+: hand the state on if moving it, feeding what is new and the overhead of both take less than prefilling the
text again. Waiting for a busy worker is on both sides and is left out of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvlab.display.drawing import actual_terms_of, alternatives_of
from kvlab.display.quantities import seconds_text
from kvlab.store.fold import Row, World

FORMULA = "T_transfer + T_resume + Ω_state < T_prefill + Ω_text"
KEEPS_STATE = ("in place", "map", "transfer", "restore")


def inequalities(row: Row) -> list[str]:
    """The inequality of an edge with its predicted values, and with measured ones as far as there are any."""
    alternatives = [a for a in alternatives_of(row) if not a.get("excluded")]
    here = [a for a in alternatives if a.get("worker") == row["worker"]]
    state = next((a for a in here if a["how"] in KEEPS_STATE), None)
    text = next((a for a in here if a["how"] == "recompute"), None)
    if state is None or text is None:
        return []
    told = [
        f"predicted: {_side(*_state_terms(state['terms']))} {_sign(state, text)} {_side(*_text_terms(text['terms']))}"
    ]
    measured = _measured(row)
    return [*told, measured] if measured else told


def _measured(row: Row) -> str:
    terms, how = actual_terms_of(row), row["actual_how"]
    audited = {
        road["how"]: road["seconds"]
        for road in (json.loads(row["audit"]) if row["audit"] else [])
        if road["worker"] == row["worker"] and road["seconds"] is not None
    }
    kept = next((name for name in KEEPS_STATE if name in audited), None)
    if kept is not None and "recompute" in audited:
        state, text = audited[kept], audited["recompute"]
        return f"measured in the audit: {seconds_text(state)} {'<' if state < text else '≥'} {seconds_text(text)}"
    if how in KEEPS_STATE:
        return f"measured: {_side(*_state_terms(terms))}; what prefilling would have taken was not measured"
    if how == "recompute":
        return f"measured: {_side(*_text_terms(terms))}; what moving would have taken was not measured"
    return ""


def _state_terms(terms: Mapping[str, float]) -> tuple[float, ...]:
    return (
        terms.get("transfer", 0.0) + terms.get("link queue", 0.0),
        terms.get("resume", 0.0),
        terms.get("overhead", 0.0),
    )


def _text_terms(terms: Mapping[str, float]) -> tuple[float, ...]:
    return terms.get("prefill", 0.0) + terms.get("resume", 0.0), terms.get("overhead", 0.0)


def _side(*values: float) -> str:
    return f"{' + '.join(map(seconds_text, values))} = {seconds_text(sum(values))}"


def _sign(state: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    return "<" if sum(_state_terms(state["terms"])) < sum(_text_terms(text["terms"])) else "≥"


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
