"""What is concluded from measured cells: regret, ties, separation, gains. No lab runs here."""

from __future__ import annotations

import pytest

from kvlab.bench.crossover import ARMS, Arm, Cell, metrics_of


def cell(n_tokens: int, link: float | None, n_edges: int, chosen: str = "hybrid", **seconds: list[float]) -> Cell:
    """A cell whose arms took these seconds; what was not given took 10 s. Predictions are a tenth too high."""
    made = Cell(n_tokens, link, n_edges, None)
    for name in ARMS:
        taken = seconds.get(name, [10.0, 10.0, 10.0])
        road = chosen if name == "ours" else name
        made.arms[name] = Arm(taken, [1.1 * one for one in taken], [{road: n_edges}] * len(taken))
    return made


def test_the_decision_of_one_edge_is_measured_by_the_arm_of_its_road() -> None:
    one = cell(2048, 1.0, 1, hybrid=[2.0, 2.1, 2.2], ours=[3.0, 3.1, 3.2], transfer=[4.0, 4.1, 4.2])
    assert (one.chosen, one.best, one.regret) == ("hybrid", "hybrid", 0.0)


def test_several_edges_are_measured_as_they_were_decided() -> None:
    many = cell(128, 1.0, 8, transfer=[2.0, 2.0, 2.0], ours=[2.2, 2.2, 2.2])
    assert (many.chosen, many.best) == ("ours", "transfer")
    assert many.regret == pytest.approx(0.1)
    assert not many.tied


def test_overlapping_intervals_are_ties_and_count_as_no_regret() -> None:
    tie = cell(128, 4.0, 1, "transfer", transfer=[1.0, 1.2, 1.4], hybrid=[0.9, 1.1, 1.3])
    assert (tie.chosen, tie.best, tie.tied) == ("transfer", "hybrid", True)
    figures = metrics_of([tie])
    assert figures["mean_regret"].value == 0
    assert figures["mean_regret_with_noise"].value == pytest.approx(1.2 / 1.1 - 1)


def test_a_cell_separates_when_a_wrong_choice_would_show() -> None:
    same = {name: [1.0, 1.1, 1.2] for name in ARMS}
    assert cell(128, 1.0, 1, **same).apart == 0
    assert cell(128, 1.0, 1, **{**same, "transfer": [2.0, 2.1, 2.2]}).apart == 1
    clear = {**same, "transfer": [2.0, 2.1, 2.2], "recompute": [3.0, 3.1, 3.2]}
    assert cell(128, 1.0, 1, **clear).apart == 2


def test_the_figures_of_a_whole() -> None:
    cells = [
        cell(2048, 1.0, 1, transfer=[4.0, 4.1, 4.2], recompute=[5.0] * 3, hybrid=[2.5, 2.6, 2.7], ours=[2.6] * 3),
        cell(128, None, 1, "transfer", transfer=[0.1, 0.1, 0.1], recompute=[0.5] * 3, ours=[0.1] * 3),
    ]
    figures = {name: metric.value for name, metric in metrics_of(cells).items()}
    assert figures["hybrid_gain_at_breakeven"] == pytest.approx(4.1 / 2.6)
    assert figures["transfer_gain_max"] == pytest.approx(5.0)
    assert figures["ours_over_best_fixed_policy"] == pytest.approx(2.7 / 4.2)
    assert figures["prediction_mape"] == pytest.approx(0.1)
    assert figures["cells_separated"] == 1
