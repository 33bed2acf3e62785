"""Review: a planner reads a document, reviewers branch off its conversation, an editor reads the document and them."""

from __future__ import annotations

from kvlab.errors import InvalidInput
from kvlab.sample import sample_text
from kvlab.workflow import Workflow

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
TASKS = ("Criticise the {} of these.", "Explain the {} point to a beginner.", "Give an example for the {} point.")
"""What reviewers are asked, in turn."""


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
    if not 1 <= reviewers <= len(ORDINALS):
        raise InvalidInput(f"reviewers= must be between 1 and {len(ORDINALS)}, not {reviewers}", value=reviewers)
    wf = Workflow("review")
    paper = wf.context("paper", sample_text() if context is None else context)
    points = "one point" if reviewers == 1 else f"{reviewers} points"
    plan = wf.agent(
        "planner", [paper, f"List {points} a reviewer of this document should check."], max_new_tokens=max_new_tokens
    )
    sides = [
        wf.agent(
            f"reviewer-{index + 1}",
            TASKS[index % len(TASKS)].format(ORDINALS[index]),
            continues=plan,
            max_new_tokens=max_new_tokens,
        )
        for index in range(reviewers)
    ]
    wf.agent(
        "editor",
        [
            paper,
            "Reviews of this document:",
            *sides,
            "Write the verdict in two sentences.",
        ],
        max_new_tokens=max_new_tokens,
    )
    return wf
