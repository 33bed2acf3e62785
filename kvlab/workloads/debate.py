"""Debate: two sides with roles of their own answer each other in rounds; a judge hears the last of both."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Agent, Workflow
from kvlab.workflow.checks import checked_integer

SIDES = {
    "for": "You argue for the claims of the document.",
    "against": "You argue against the claims of the document.",
}
MOST = 8


def debate(context: str | None = None, *, rounds: int = 2, max_new_tokens: int = 32) -> Workflow:
    """Two conversations that each go on over ``rounds`` rounds (1 to 8), each reading the other's last answer.

    The sides have different roles, so their states have no common prefix: what is reused is each side's own past.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("debate")
    paper = wf.context("paper", sample_text() if context is None else context)
    last: dict[str, Agent] = {
        side: wf.agent(f"{side}-1", [paper, "State your case."], role=role, max_new_tokens=max_new_tokens)
        for side, role in SIDES.items()
    }
    for number in range(2, checked_integer("rounds=", rounds, 1, MOST) + 1):
        said = dict(last)
        for side, other in (("for", "against"), ("against", "for")):
            prompt: list[str | Agent] = ["The other side says:", said[other], "Answer it."]
            last[side] = wf.agent(f"{side}-{number}", prompt, continues=said[side], max_new_tokens=max_new_tokens)
    wf.agent("judge", [paper, "The two sides:", *last.values(), "Who is right?"], max_new_tokens=max_new_tokens)
    return wf
