"""Plan and execute: a plan, then steps that each wait for a tool while their state is idle; a report at the end."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workflow.checks import checked_integer

MOST = 12


def plan_execute(
    context: str | None = None, *, steps: int = 3, pause_ms: int = 200, max_new_tokens: int = 24
) -> Workflow:
    """One conversation of a planner and ``steps`` steps (1 to 12) over the document.

    Before each step a tool looks up a sentence for the last answer, ``pause_ms`` ms after it was asked (0 to 60,000).
    For so long nobody computes on the state: it is held, and the next step goes on from it.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("plan-execute")
    paper = wf.context("paper", sample_text() if context is None else context)
    pause = checked_integer("pause_ms=", pause_ms, 0, 60_000) / 1000
    last = wf.agent("planner", [paper, "Plan how to check this document."], max_new_tokens=max_new_tokens)
    for number in range(1, checked_integer("steps=", steps, 1, MOST) + 1):
        found = wf.tool(f"look-up-{number}", [paper, last], call="find-sentence", pause_seconds=pause, max_tokens=256)
        last = wf.agent(
            f"step-{number}",
            ["Found:", found, "Do the next step of the plan with it."],
            continues=last,
            max_new_tokens=max_new_tokens,
        )
    wf.agent("report", "Report what came of the plan.", continues=last, max_new_tokens=max_new_tokens)
    return wf
