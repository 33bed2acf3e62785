"""Review: a planner reads a document, reviewers branch off its conversation, an editor reads the document and them."""

from __future__ import annotations

from kvlab.errors import InvalidInput
from kvlab.sample import sample_text
from kvlab.workflow import Workflow

MOST_REVIEWERS = 10


def review(context: str | None = None, *, reviewers: int = 3, max_new_tokens: int = 48) -> Workflow:
    """The review workflow: every kind of edge in one small graph.

    The document is materialized once for planner and editor; the reviewers fork the planner's state and run as
    siblings; their answers reach the editor as text.

    Parameters
    ----------
    context
        The document; None takes :func:`kvlab.sample.sample_text`.
    reviewers
        How many branches, 1 to 10.
    max_new_tokens
        For each agent.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    if not 1 <= reviewers <= MOST_REVIEWERS:
        raise InvalidInput(f"reviewers= must be between 1 and {MOST_REVIEWERS}, not {reviewers}", value=reviewers)
    wf = Workflow("review")
    paper = wf.context("paper", sample_text() if context is None else context)
    named = "one weakness" if reviewers == 1 else f"{reviewers} weaknesses"
    plan = wf.agent(
        "planner", [paper, f"Name {named} of this document, one short line each."], max_new_tokens=max_new_tokens
    )
    sides = [
        wf.agent(
            f"reviewer-{n}", f"Argue weakness {n} in two sentences.", continues=plan, max_new_tokens=max_new_tokens
        )
        for n in range(1, reviewers + 1)
    ]
    wf.agent(
        "editor",
        [
            paper,
            "Reviews of this document:",
            *sides,
            "Write the verdict: accept, revise or reject, and why.",
        ],
        max_new_tokens=max_new_tokens,
    )
    return wf
