"""Fan-out, fan-in: many branches of one state at once, and one agent that reads all of their answers."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workflow.checks import checked_integer

ANGLES = ("method", "data", "cost", "risk", "novelty", "clarity", "ethics", "reach")
MOST = 32


def fan_out(context: str | None = None, *, branches: int = 6, max_new_tokens: int = 24) -> Workflow:
    """``branches`` agents (1 to 32) fork the reader's state; a judge goes on from it with what they said.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("fan-out")
    paper = wf.context("paper", sample_text() if context is None else context)
    reader = wf.agent("reader", [paper, "Say in one sentence what this is about."], max_new_tokens=max_new_tokens)
    sides = [
        wf.agent(
            f"branch-{number + 1}",
            f"Judge its {ANGLES[number % len(ANGLES)]} in one sentence.",
            continues=reader,
            max_new_tokens=max_new_tokens,
        )
        for number in range(checked_integer("branches=", branches, 1, MOST))
    ]
    wf.agent(
        "judge", ["Judgements:", *sides, "Which one weighs most?"], continues=reader, max_new_tokens=max_new_tokens
    )
    return wf
