"""Observed edges move predictions towards what they cost, and no single one runs away with them."""

from __future__ import annotations

import pytest

from kvlab.cost.corrections import BOUND, WEIGHT, Corrections
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve

COST = CostModel(
    PrefillCurve(0.01, 1e-3, 1e-6, 1), DecodeCurve(0.01), Link(0.1, 1e6), 0.0, 0.0, {"a→b": Link(0.2, 1e7)}
)


def test_repeated_observations_converge_to_what_is_measured() -> None:
    seen = Corrections()
    for _ in range(30):
        seen = seen.saw_link("a→b", COST.link("a", "b").seconds(10**7), 2.4)
        seen = seen.saw_prefill(COST.prefill.seconds(100), 0.05)
    corrected = seen.applied(COST)
    assert corrected.link("a", "b").seconds(10**7) == pytest.approx(2.4, rel=1e-3)
    assert corrected.prefill.seconds(100) == pytest.approx(0.05, rel=1e-3)


def test_overhead_is_learned_as_a_factor_on_tasks() -> None:
    cost = CostModel(COST.prefill, COST.decode, COST.frames, 0.0, 0.010)
    seen = Corrections()
    for _ in range(30):
        seen = seen.saw_overhead(cost.task_seconds, 0.035)
    assert seen.applied(cost).task_seconds == pytest.approx(0.035, rel=1e-3)
    assert seen.applied(cost).prefill == cost.prefill


def test_other_links_are_left_alone() -> None:
    corrected = Corrections().saw_link("a→b", 1.0, 2.0).applied(COST)
    assert corrected.link("b", "a") == COST.frames
    assert corrected.link("a", "b").seconds(0) == pytest.approx(0.2 * (1 + WEIGHT))


def test_a_pair_that_was_not_measured_starts_from_the_frames() -> None:
    corrected = Corrections().saw_link("b→a", 1.0, 2.0).applied(COST)
    assert corrected.link("b", "a").seconds(10**6) == pytest.approx(1.1 * (1 + WEIGHT))


def test_one_outlier_is_bounded_and_nonsense_is_ignored() -> None:
    assert Corrections().saw_prefill(1.0, 1000.0).prefill == pytest.approx(1 + WEIGHT * (BOUND - 1))
    assert Corrections().saw_prefill(1000.0, 1.0).prefill == pytest.approx(1 + WEIGHT * (1 / BOUND - 1))
    assert Corrections().saw_prefill(0.0, 1.0).saw_prefill(1.0, 0.0) == Corrections()
