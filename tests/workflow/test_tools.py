"""Tools as they are written, and those that have a name."""

from __future__ import annotations

import pytest

from kvlab import Workflow
from kvlab.errors import InvalidInput
from kvlab.workflow.tools import TOOLS, count_words, find_sentence


def test_named_tools_answer_from_their_texts_alone() -> None:
    document = "Caches are thrown away. Agents share one context! Do agents wait? They do."
    assert find_sentence(document, "What do the agents share") == "Agents share one context!"
    assert find_sentence(document, "zzz") == "Caches are thrown away."
    assert count_words("one two", "three") == "3 words."
    assert {name: call(document) for name, call in TOOLS.items()} == {
        name: call(document) for name, call in TOOLS.items()
    }


def test_a_tool_is_read_and_never_continued() -> None:
    wf = Workflow("w")
    first = wf.agent("first", "Begin.")
    found = wf.tool("found", [first, "more"], call="wait")
    assert wf["found"] == found
    wf.agent("second", [found, "Go on."], continues=first)
    with pytest.raises(InvalidInput, match="must be an agent, not a tool"):
        wf.agent("third", "On.", continues=found)
    with pytest.raises(InvalidInput, match="must be an agent, not a tool"):
        wf.merge("both", [first, found])
    with pytest.raises(InvalidInput, match="refers to itself"):
        wf.tool("found", [found], call="wait")
    assert repr(wf) == "<kvlab workflow 'w': 0 contexts, 2 agents, 1 tool>"
    assert "calls wait" in wf._repr_html_()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"call": "walk"}, "call= of tool 't'"),
        ({"call": None}, "call= of tool 't'"),
        ({"call": "wait", "pause_seconds": float("nan")}, "pause_seconds="),
        ({"call": "wait", "hold_seconds": "long"}, "hold_seconds="),
        ({"call": "wait", "max_tokens": 0}, "max_tokens="),
        ({"call": "wait", "pause": 1}, "has no keyword pause="),
    ],
)
def test_what_cannot_be_meant_is_refused(told: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Workflow("w").tool("t", "text", **told)  # type: ignore[arg-type]
