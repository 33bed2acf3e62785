"""Map-reduce over documents: the same instructions before each part of a long text, then one summary of all."""

from __future__ import annotations

from kvlab.errors import InvalidInput
from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workflow.checks import checked_integer

INSTRUCTIONS = (
    "You read one part of a longer document. Report what it claims, what it shows, and what it leaves out. "
    "Keep to the part in front of you, and do not guess what the others say. Answer in one sentence."
)
MOST = 32


def map_reduce(context: str | None = None, *, parts: int = 4, max_new_tokens: int = 24) -> Workflow:
    """``parts`` agents (1 to 32), each with one part of the document behind the same instructions, and a reducer.

    Raises
    ------
    InvalidInput
        For a document without so many words, or a number out of range.
    """
    wf = Workflow("map-reduce")
    words = (sample_text() if context is None else context).split(" ")
    count = checked_integer("parts=", parts, 1, MOST)
    if len(words) < count:
        raise InvalidInput(f"a document of {len(words)} words has no {count} parts", hint="fewer parts=")
    rules = wf.context("instructions", INSTRUCTIONS)
    ends = [len(words) * number // count for number in range(count + 1)]
    answers = []
    for number in range(count):
        piece = wf.context(f"part-{number + 1}", " ".join(words[ends[number] : ends[number + 1]]))
        answers.append(wf.agent(f"map-{number + 1}", [rules, piece, "Report."], max_new_tokens=max_new_tokens))
    wf.agent("reduce", [rules, "Reports:", *answers, "Sum them up."], max_new_tokens=max_new_tokens)
    return wf
