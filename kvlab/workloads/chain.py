"""Chain: each agent goes on with the conversation of the one before, on another worker's state if that is cheaper."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workflow.checks import checked_integer

TASKS = (
    "Name the main claim of this document.",
    "Give the strongest evidence for it.",
    "Name one objection to it.",
    "Answer that objection.",
    "Say what remains open.",
    "Write one sentence for a newspaper.",
)
MOST = 24


def chain(context: str | None = None, *, agents: int = 4, max_new_tokens: int = 32) -> Workflow:
    """A linear hand-off: ``agents`` turns of one conversation over the document, 1 to 24.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("chain")
    paper = wf.context("paper", sample_text() if context is None else context)
    last = wf.agent("agent-1", [paper, TASKS[0]], max_new_tokens=max_new_tokens)
    for number in range(2, checked_integer("agents=", agents, 1, MOST) + 1):
        task = TASKS[(number - 1) % len(TASKS)]
        last = wf.agent(f"agent-{number}", task, continues=last, max_new_tokens=max_new_tokens)
    return wf
