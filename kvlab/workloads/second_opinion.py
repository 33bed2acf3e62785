"""Second opinion: a writer's conversation goes to a reviewer, who may be another model, and back, round by round."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Agent, Workflow
from kvlab.workflow.checks import checked_integer

MOST = 8


def second_opinion(
    context: str | None = None, *, rounds: int = 2, model: str = "", max_new_tokens: int = 32
) -> Workflow:
    """A writer and a reviewer who go on with each other's turns, ``rounds`` times (1 to 8).

    With ``model`` the reviewer is that one, which ``lab.add_model`` has to load. Then neither can use the other's state:
    each reads what the other said as text and goes on from its own last state.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("second-opinion")
    paper = wf.context("paper", sample_text() if context is None else context)
    text: Agent = wf.agent("draft", [paper, "Sum this up in two sentences."], max_new_tokens=max_new_tokens)
    for number in range(1, checked_integer("rounds=", rounds, 1, MOST) + 1):
        opinion = wf.agent(
            f"opinion-{number}",
            "Say what is wrong with that.",
            continues=text,
            model=model or None,
            max_new_tokens=max_new_tokens,
        )
        text = wf.agent(f"revision-{number}", "Write it better.", continues=opinion, max_new_tokens=max_new_tokens)
    return wf
