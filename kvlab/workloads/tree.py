"""Tree of thought: children go on from their parent's generated state, level by level; the leaves are compared."""

from __future__ import annotations

from kvlab.errors import InvalidInput
from kvlab.sample import sample_text
from kvlab.workflow import Agent, Workflow
from kvlab.workflow.checks import checked_integer

MOST_LEAVES = 64


def tree(context: str | None = None, *, depth: int = 2, width: int = 2, max_new_tokens: int = 24) -> Workflow:
    """A tree of ``width`` children a thought and ``depth`` levels below the first, at most 64 leaves.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("tree")
    paper = wf.context("paper", sample_text() if context is None else context)
    leaves = checked_integer("width=", width, 1, MOST_LEAVES) ** checked_integer("depth=", depth, 1, MOST_LEAVES)
    if leaves > MOST_LEAVES:
        raise InvalidInput(f"depth={depth} and width={width} make {leaves} leaves", hint=f"at most {MOST_LEAVES}")
    level: list[Agent] = [
        wf.agent("thought", [paper, "Name one question that this leaves open."], max_new_tokens=max_new_tokens)
    ]
    for _ in range(depth):
        level = [
            wf.agent(
                f"{parent.name}.{number}",
                f"Go on with possibility {number}.",
                continues=parent,
                max_new_tokens=max_new_tokens,
            )
            for parent in level
            for number in range(1, width + 1)
        ]
    wf.agent("choice", [paper, "Thoughts:", *level, "Which one is best?"], max_new_tokens=max_new_tokens)
    return wf
