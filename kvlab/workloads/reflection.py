"""Reflection: a draft is criticised and written again, round by round, until the critic has nothing left to say."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workflow.checks import checked_integer, checked_text

ASK = "Name one weakness of this draft in one sentence. If it has none, answer only: {}"
MOST = 8


def reflection(
    context: str | None = None, *, rounds: int = 3, stop: str = "DONE", max_new_tokens: int = 32
) -> Workflow:
    """A writer and a critic, two conversations that read each other, for at most ``rounds`` rounds (1 to 8).

    A revision is skipped when the critic has said ``stop``. The next critique is skipped too and stands for the one
    before, which said it, so all later rounds are skipped: the headline goes on from the last draft that was written.

    Raises
    ------
    InvalidInput
        For an empty document or word, or a number out of range.
    """
    wf = Workflow("reflection")
    paper = wf.context("paper", sample_text() if context is None else context)
    ask = ASK.format(checked_text("stop=", stop))
    text = wf.agent("draft", [paper, "Tell in two sentences what this is about."], max_new_tokens=max_new_tokens)
    critique = wf.agent("critique-1", [paper, "A draft:", text, ask], max_new_tokens=max_new_tokens)
    for number in range(1, checked_integer("rounds=", rounds, 1, MOST) + 1):
        content = (critique, stop)
        if number > 1:
            critique = wf.agent(
                f"critique-{number}",
                ["The new draft:", text, ask],
                continues=critique,
                unless=content,
                max_new_tokens=max_new_tokens,
            )
        text = wf.agent(
            f"revision-{number}",
            ["A critic says:", critique, "Write the draft again without that weakness."],
            continues=text,
            unless=(critique, stop),
            max_new_tokens=max_new_tokens,
        )
    wf.agent("headline", "Write a headline for it.", continues=text, max_new_tokens=max_new_tokens)
    return wf
