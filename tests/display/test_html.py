from types import ModuleType

import pytest

from kvlab.display.decisions_page import quality
from kvlab.display.html import Html, decision_html, html_table, style, text
from kvlab.display.look import DASHES
from kvlab.store.fold import World, fold


def test_cells_are_escaped_unless_they_are_html() -> None:
    table = html_table([["<b>", Html("<i>x</i>"), None, 3]], ["a & b", "c", "d", "e"], {3})
    assert table == (
        '<table class="kv-table"><thead><tr><th>a &amp; b</th><th>c</th><th>d</th><th class="num">e</th></tr></thead>'
        '<tbody><tr><td>&lt;b&gt;</td><td><i>x</i></td><td>–</td><td class="num">3</td></tr></tbody></table>'
    )
    assert text(table) is table


def test_without_headers_there_is_no_head() -> None:
    assert "thead" not in html_table([["a", 1]], [])


@pytest.mark.parametrize("how", list(DASHES))
def test_a_decision_has_its_name_dash_and_colour(how: str) -> None:
    shown = decision_html(how)
    assert how in shown
    assert f'stroke-dasharray="{DASHES[how]}"' in shown
    token = how.replace(" ", "-")
    assert f"d-{token}" in shown
    assert f".d-{token}{{stroke:var(--kv-{token})" in style()


def test_an_unknown_decision_is_shown_and_escaped() -> None:
    assert "&lt;x&gt;" in decision_html("<x>")
    assert "d-state" in decision_html("<x>")


def test_decision_quality_counts_and_errors(state: World, review: ModuleType) -> None:
    rows = state.rows["edges"]
    kept = [row for row in rows if row["chosen"] == row["actual_how"]]
    errors = sorted(abs(row["actual_seconds"] / row["predicted_seconds"] - 1) for row in kept)
    middle = (errors[1] + errors[2]) / 2
    assert quality(rows) == (
        f"5 decisions, 4 of 5 carried out as planned. Median error of their predicted seconds: {middle:.0%}."
    )
    begun = fold([event for event in review.review_events("state") if event.kind != "decision.actual"])
    assert quality(begun.rows["edges"]) == "5 decisions, 0 of 0 carried out as planned."
