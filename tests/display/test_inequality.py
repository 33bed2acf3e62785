"""The inequality of a decision compares what was chosen with the best of the roads that do the other thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvlab.display.inequality import HYBRID, STATE, TEXT, WAIT, inequalities, inequality_formula
from kvlab.display.quantities import seconds_text
from kvlab.store.fold import Row

TERMS = {
    "transfer": {"queue": 0.5, "transfer": 0.3, "resume": 0.05, "overhead": 0.004, "overlap": -0.3},
    "recompute": {"queue": 0.5, "prefill": 1.2, "resume": 0.05, "overhead": 0.008},
    "hybrid": {"queue": 0.5, "transfer": 0.2, "prefill": 0.4, "resume": 0.05, "overhead": 0.02, "overlap": -0.2},
    "in place": {"queue": 2.0, "resume": 0.05, "overhead": 0.004},
}


def road(how: str, worker: str = "w1", **more: Any) -> dict[str, Any]:
    return {"how": how, "worker": worker, "terms": TERMS[how], "seconds": sum(TERMS[how].values()), **more}


def row(chosen: str, *roads: dict[str, Any], worker: str = "w1", **more: Any) -> Row:
    nothing = {"actual_how": None, "actual_terms": None, "audit": None}
    return {"chosen": chosen, "worker": worker, "alternatives": json.dumps(roads), **nothing, **more}


@pytest.mark.parametrize(
    ("chosen", "rival", "formula"),
    [
        ("transfer", "hybrid", f"{STATE} < {HYBRID}"),
        ("hybrid", "transfer", f"{HYBRID} < {STATE}"),
        ("recompute", "transfer", f"{TEXT} < {STATE}"),
    ],
)
def test_the_chosen_road_stands_left_and_its_best_rival_right(chosen: str, rival: str, formula: str) -> None:
    edge = row(chosen, road("transfer"), road("hybrid"), road("recompute"))
    assert inequality_formula(edge) == formula
    left, right = (sum(TERMS[how].values()) - TERMS[how]["queue"] for how in (chosen, rival))
    (told,) = inequalities(edge)
    sign = "<" if left < right else "≥"
    assert told.startswith(f"predicted: {chosen} ")
    assert f" = {seconds_text(left)} {sign} {rival} " in told
    assert told.endswith(f" = {seconds_text(right)}")


def test_waiting_is_told_where_the_workers_differ() -> None:
    edge = row("transfer", road("transfer"), road("in place", "w0"), road("recompute", "w0"))
    assert inequality_formula(edge) == f"{WAIT}{STATE} < {WAIT}{TEXT}"
    (told,) = inequalities(edge)
    assert "transfer on w1 0.50 s + " in told
    assert "recompute on w0 0.50 s + " in told
    assert told.endswith(seconds_text(sum(TERMS["recompute"].values())))


def test_what_is_excluded_is_no_rival_and_without_a_rival_nothing_is_compared() -> None:
    edge = row("transfer", road("transfer"), road("hybrid", excluded="no room"), road("recompute"))
    assert inequality_formula(edge) == f"{STATE} < {TEXT}"
    alone = row("recompute", road("recompute"), road("recompute", "w0"))
    assert (inequality_formula(alone), inequalities(alone)) == ("", [])


def test_what_was_measured_is_told_of_the_road_taken_and_of_the_best_audited_one() -> None:
    roads = road("transfer"), road("hybrid"), road("recompute")
    did = {"actual_how": "hybrid", "actual_terms": json.dumps(TERMS["hybrid"])}
    assert inequalities(row("hybrid", *roads, **did))[1].endswith("; what transfer would have taken was not measured")
    did = {"actual_how": "recompute", "actual_terms": json.dumps(TERMS["recompute"])}
    assert inequalities(row("hybrid", *roads, **did))[1].endswith("; what hybrid would have taken was not measured")
    audit = [
        {"how": one["how"], "worker": "w1", "seconds": took} for one, took in zip(roads, (0.3, 0.4, 1.5), strict=True)
    ]
    edge = row("hybrid", *roads, **did, audit=json.dumps(audit))
    assert inequalities(edge)[1] == "measured in the audit: hybrid 0.40 s ≥ transfer 0.30 s"
