"""The cost model: measured points give the curve back, never a negative cost."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.cost.model import NEVER, CostModel, DecodeCurve, Link, PrefillCurve

POINTS = ((32, 0), (128, 0), (448, 0), (32, 448), (128, 448))
cost = st.one_of(st.just(0.0), st.floats(1e-9, 1.0))


def measured(curve: PrefillCurve) -> list[tuple[int, int, float]]:
    return [(n, past, curve.seconds(n, past)) for n, past in POINTS]


def relative_error(curve: PrefillCurve, points: list[tuple[int, int, float]]) -> float:
    return sum((curve.seconds(n, past) / seconds - 1) ** 2 for n, past, seconds in points)


def model(a: float = 0.0, b: float = 0.0, c: float = 0.0, task: float = 0.0, mapping: float = 0.0) -> CostModel:
    return CostModel(
        PrefillCurve(a, b, c, 2),
        DecodeCurve(0.01, 0.001, 1e-6, 2),
        Link(0.001, 1e8),
        mapping,
        task,
        {"a→b": Link(0.002, 1e6, 0.5)},
        measured_at="2026-01-01T00:00:00+00:00",
    )


@pytest.mark.parametrize(
    "curve",
    [
        PrefillCurve(0.004, 2e-4, 3e-8, 2),
        PrefillCurve(0.0, 2e-4, 3e-8, 2),
        PrefillCurve(0.02, 0.0, 1e-6, 2),
        PrefillCurve(0.02, 1e-3, 0.0, 2),
        PrefillCurve(0.5, 0.0, 0.0, 1),
    ],
)
def test_exact_points_give_the_curve_back(curve: PrefillCurve) -> None:
    found = PrefillCurve.fit(measured(curve), curve.threads)
    assert found.threads == curve.threads
    assert (found.a, found.b, found.c) == pytest.approx((curve.a, curve.b, curve.c), rel=1e-6, abs=1e-12)


@given(cost, cost, cost, st.lists(st.floats(0.2, 5.0), min_size=5, max_size=5))
def test_noisy_points_give_no_negative_cost_and_no_worse_curve_than_the_true_one(
    a: float, b: float, c: float, noise: list[float]
) -> None:
    true = PrefillCurve(a + 1e-6, b, c, 2)
    points = [(n, past, seconds * by) for (n, past, seconds), by in zip(measured(true), noise, strict=True)]
    found = PrefillCurve.fit(points, 2)
    assert min(found.a, found.b, found.c) >= 0
    assert np.isfinite(found.seconds(8192, 8192))
    assert relative_error(found, points) <= relative_error(true, points) * (1 + 1e-6) + 1e-9
    for other in (PrefillCurve(found.a * 1.01, found.b, found.c, 2), PrefillCurve(found.a, found.b * 0.99, found.c, 2)):
        assert relative_error(found, points) <= relative_error(other, points) * (1 + 1e-6) + 1e-9


@given(cost, cost, cost, st.integers(0, 4000), st.integers(0, 4000), st.integers(0, 4000))
def test_a_longer_prefill_and_a_longer_past_never_cost_less(
    a: float, b: float, c: float, n: int, m: int, past: int
) -> None:
    curve = PrefillCurve(a, b, c, 2)
    low, high = sorted((n, m))
    assert curve.seconds(low, past) <= curve.seconds(high, past)
    assert curve.seconds(n, past) <= curve.seconds(n, past + 1)
    # One prefill in two pieces costs one constant more, for the attention adds up.
    if n and m:
        whole, pieces = curve.seconds(n + m, past), curve.seconds(n, past) + curve.seconds(m, past + n)
        assert pieces == pytest.approx(whole + a, rel=1e-6)


def test_nothing_to_prefill_costs_nothing_and_threads_scale_the_work_alone() -> None:
    curve = PrefillCurve(1.0, 0.1, 0.0, 2)
    assert curve.seconds(0, 100) == 0
    assert curve.seconds(10) == curve.seconds(10, 0, 2) == 2.0
    assert curve.seconds(10, 0, 1) == 3.0
    assert curve.seconds(10, 0, 4) == 1.5


def test_a_link_is_a_line() -> None:
    assert Link(0.5, 1e6).seconds(0) == 0.5
    assert Link(0.5, 1e6).seconds(2_000_000) == 2.5


def test_it_survives_storage() -> None:
    known = model(0.1, 0.2, 0.3, 0.4, 0.5)
    assert CostModel.from_dict(json.loads(json.dumps(known.as_dict()))) == known


@given(cost, cost, cost, cost, cost)
def test_the_shortest_prefix_worth_a_task_pays_for_it_and_a_shorter_one_does_not(
    a: float, b: float, c: float, task: float, mapping: float
) -> None:
    known = model(a, b, c, task, mapping)
    n = known.tokens_worth_a_task()
    price = task + mapping + a

    def fed(tokens: int) -> float:
        return b * tokens + c * tokens * tokens / 2

    assert 1 <= n <= NEVER
    if n < NEVER:
        assert fed(n) >= price * (1 - 1e-9)
    else:
        assert fed(n - 1) <= price
    if n > 1:
        assert fed(n - 1) <= price * (1 + 1e-9)


def test_tokens_worth_a_task_in_numbers() -> None:
    assert model(a=0.010, b=1e-3, task=0.004, mapping=0.001).tokens_worth_a_task() == 15
    assert model(c=2.0, task=9.0).tokens_worth_a_task() == 3
    assert model(b=1.0).tokens_worth_a_task() == 1
    assert model(a=1.0).tokens_worth_a_task() == NEVER


def test_a_link_is_found_from_what_it_took() -> None:
    link = Link(0.004, 2e8)
    sizes = [50_000, 400_000, 3_000_000, 12_000_000, 50_000_000]
    found = Link.fit([(nbytes, link.seconds(nbytes)) for nbytes in sizes], cold=0.01)
    assert found.t0 == pytest.approx(link.t0)
    assert found.bytes_per_second == pytest.approx(link.bytes_per_second)
    assert found.cold == 0.01


def test_noise_of_small_messages_does_not_decide_a_links_rate() -> None:
    """Differences of two round trips: the small ones come out as nothing, or as several times what they are."""
    measured_ = [(50_000, 1e-4), (400_000, 1e-4), (3_000_000, 0.012), (12_000_000, 0.012), (47_000_000, 0.04)]
    found = Link.fit(measured_)
    assert found.seconds(90_000_000) == pytest.approx(0.08, rel=0.25)


def test_a_link_needs_two_sizes() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        Link.fit([(1000, 0.1), (1000, 0.2)])
