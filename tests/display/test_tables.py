from __future__ import annotations

from dataclasses import replace
from io import StringIO
from types import ModuleType

import pytest
from rich.console import Console

from kvlab.display.comparison import compare, run_figures
from kvlab.display.tables import agent_rows, comparison_html, comparison_table, total_rows, verdict
from kvlab.errors import InvalidInput
from kvlab.store.events import Kind
from kvlab.store.fold import World, fold


def printed(renderable: object, width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return out.getvalue()


def test_figures_are_those_of_the_turns(state: World, texts: list[World], review: ModuleType) -> None:
    found = compare(state, texts)
    assert [agent.agent for agent in found.agents] == ["context:paper", *review.AGENTS]
    for agent in found.agents[1:]:
        turn = state.find("turns", agent.agent)
        assert turn is not None
        assert (agent.ttft_seconds, agent.n_prefilled) == (turn["ttft_seconds"], turn["n_prefilled"])
        others = [text.find("turns", agent.agent) or {} for text in texts]
        assert agent.text_ttft_seconds == min(turn["ttft_seconds"] for turn in others)
        assert agent.ttft_ratio == agent.text_ttft_seconds / turn["ttft_seconds"]
    assert found.n_same_tokens == (5, 5)
    assert found.text == run_figures(texts[0])


def test_the_shared_context_is_prefilled_once_and_counted(state: World) -> None:
    figures = run_figures(state)
    turns = state.rows["turns"]
    assert figures.n_prefilled == 1024 + sum(turn["n_prefilled"] for turn in turns)
    assert figures.n_reused == sum(turn["n_reused"] for turn in turns)


def test_tokens_that_differ_are_told(state: World, review: ModuleType) -> None:
    events = [
        replace(event, detail={**event.detail, "token_ids": [1, 2]})
        if event.kind is Kind.TURN_FINISHED and event.agent == "editor"
        else event
        for event in review.review_events("text")
    ]
    found = compare(state, [fold(events), fold(review.review_events("text"))])
    assert {agent.agent: agent.same_tokens for agent in found.agents}["editor"] is False
    assert found.n_same_tokens == (4, 5)
    assert "4 of 5 agents" in verdict(found)


def test_only_textflow_runs_of_the_same_workflow_are_compared(state: World, texts: list[World]) -> None:
    with pytest.raises(InvalidInput, match="no textflow run"):
        compare(state, [state])
    other = fold([])
    other.run = {**texts[0].run, "name": "other"}
    with pytest.raises(InvalidInput, match="'other'"):
        compare(state, [other])


def test_a_slower_stateflow_is_called_slower(texts: list[World], review: ModuleType) -> None:
    slow = fold(review.review_events("state", link=1e6))
    assert "slower" in verdict(compare(slow, texts))


def test_a_failed_run_is_not_praised(state: World, texts: list[World]) -> None:
    state.run = {**state.run, "status": "failed"}
    assert verdict(compare(state, texts)).startswith("This run is failed")


def test_a_terminal_of_80_columns_cuts_no_number(state: World, texts: list[World]) -> None:
    shown = printed(comparison_table(state, *texts))
    for headers, rows in (agent_rows(compare(state, texts)), total_rows(compare(state, texts))):
        for row in rows:
            for header, cell in zip(headers, row, strict=True):
                if header != "state edge":
                    assert cell in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_html_has_the_same_cells_and_tells_a_changed_plan(state: World, texts: list[World]) -> None:
    html = comparison_html(state, *texts)
    for _, rows in (agent_rows(compare(state, texts)), total_rows(compare(state, texts))):
        assert all(cell in html for row in rows for cell in row[:-1])
    assert "(planned transfer)" in html
    assert "measured" in html


def test_names_are_escaped(state: World) -> None:
    for row in state.rows["agents"]:
        if row["agent"] == "planner":
            row["agent"] = "<b>"
    for row in state.rows["turns"]:
        row["agent"] = "<b>"
    state._by_key["turns", "<b>"] = state.rows["turns"][0]
    html = comparison_html(state)
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_a_run_without_anything_has_a_table() -> None:
    assert "wall time" in printed(comparison_table(World.empty()))
