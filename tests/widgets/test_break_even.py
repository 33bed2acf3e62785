"""The one thing that a browser computes: its curves of seconds over tokens are those of ``decide``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvlab.cost.decide import decide
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.world import Edge, Piece, View, WorkerView
from kvlab.runtime.turns import describe_alternative

pytestmark = pytest.mark.browser

PER_TOKEN = 46_080
COST = CostModel(PrefillCurve(0.02, 0.0011, 4e-7, 2), DecodeCurve(0.03), Link(0.005, 15e6), 0.002, 0.004)


def roads(n_tokens: int) -> dict[str, Any]:
    piece = Piece("a", n_tokens, n_tokens * PER_TOKEN)
    workers = (WorkerView("w0", "here", frozenset({"a"}), threads=2), WorkerView("w1", "there", frozenset(), threads=2))
    made = decide(Edge("x→y", "x", "y", (piece,), 1), View(workers, COST, mappable=False))
    return {a.how: describe_alternative(a) for a in made.alternatives if a.worker == "w1"}


@pytest.mark.parametrize("n_tokens", [128, 900, 4000])
def test_curves_agree_with_decide_on_a_grid(n_tokens: int, browser: Any) -> None:
    import kvlab_widgets

    folder = Path(kvlab_widgets.__file__).parent
    code = "\n".join(
        (folder / name).read_text() for name in ("client/format.mjs", "client/panel.mjs", "views/decision.mjs")
    )
    page = browser.new_page()
    at = roads(n_tokens)
    told = {
        how: {"took": a["seconds"], "terms": a["terms"], "nbytes": a["nbytes"], "missing": a["missing_tokens"]}
        for how, a in at.items()
    }
    cost = {"prefill": {"a": 0.02, "b": 0.0011, "c": 4e-7}, "frames": {"t0": 0.005, "bytes_per_second": 15e6},
            "bytes_per_token": PER_TOKEN}  # fmt: skip
    curves = page.evaluate(
        f"([cost, n, r]) => {{ {code}\n return breakEven(cost, n, r.transfer, r.recompute, r.hybrid ?? null, 9) }}",
        [cost, n_tokens, told],
    )
    page.close()
    for n, transfer, recompute in zip(curves["x"], curves["transfer"], curves["recompute"], strict=True):
        whole = roads(round(n))
        assert transfer == pytest.approx(whole["transfer"]["seconds"], rel=5e-3)
        assert recompute == pytest.approx(whole["recompute"]["seconds"], rel=5e-3)
    fast = [n for n, a, b in zip(curves["x"], curves["transfer"], curves["recompute"], strict=True) if b < a]
    if curves["even"] is not None:
        assert all(n <= curves["even"] for n in fast) or all(n >= curves["even"] for n in fast)
