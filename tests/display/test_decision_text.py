"""Decisions and pending actions show themselves: text and HTML, user's text escaped."""

from __future__ import annotations

from dataclasses import replace

from kvlab.cost.decide import Decision
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.roads import Alternative
from kvlab.cost.world import Edge, View
from kvlab.runtime.units import PendingAction

EDGE = Edge("<b>plan</b>→editor", "<b>plan</b>", "editor", (), 12, 1, 4)
MOVE = Alternative("transfer", "worker-1", {"transfer": 0.25, "resume": 0.06}, nbytes=94 << 20, missing_tokens=2048)
AGAIN = Alternative("recompute", "worker-0", {"prefill": 1.2}, missing_tokens=2048)
SHUT = replace(AGAIN, how="map", excluded="other host <i>")
VIEW = View((), CostModel(PrefillCurve(0.0, 0.0, 0.0, 1), DecodeCurve(0.0), Link(0.0, 1.0), 0.0, 0.0), mappable=False)
DECISION = Decision(EDGE, VIEW, (MOVE, AGAIN, SHUT), MOVE, "94.0 MiB go to worker-1", "cheapest")


def test_a_decision_in_a_line_and_in_full() -> None:
    assert repr(DECISION) == (
        "<decision <b>plan</b>→editor: transfer on worker-1, 94.0 MiB, 0.31 s predicted; 3 alternatives>"
    )
    lines = str(DECISION).splitlines()
    assert lines[1].split() == ["road", "worker", "predicted", "its", "terms", "moves", "missing"]
    assert "transfer 0.25 s, resume 60 ms" in lines[2]
    assert lines[2].endswith("chosen")
    assert lines[4].endswith("other host <i>")
    assert lines[-1] == "cheapest: 94.0 MiB go to worker-1"


def test_in_a_cell_what_a_person_wrote_is_escaped_and_the_choice_is_marked() -> None:
    page = DECISION._repr_html_()
    assert "&lt;b&gt;plan&lt;/b&gt;→editor" in page
    assert "<b>plan" not in page
    assert "other host &lt;i&gt;" in page
    assert page.count("✓") == 1
    assert 'body[data-jp-theme-light="false"]' in page


def test_what_is_pending_is_one_sentence() -> None:
    waits = PendingAction("run/x", "resume", ("editor",), EDGE.id, DECISION)
    assert str(waits) == "next: editor, by transfer of <b>plan</b> → worker-1, 94.0 MiB, 0.31 s predicted"
    assert "&lt;b&gt;plan" in waits._repr_html_()
    assert str(PendingAction("run/x", "materialize", ("context:paper",))) == "next: prefill of context:paper"
