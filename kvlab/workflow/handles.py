"""Handles: what ``wf.context(…)`` and ``wf.agent(…)`` return. They refer by name within their workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.errors import InvalidInput

if TYPE_CHECKING:
    from kvlab.workflow.workflow import Workflow


class Handle:
    """A name in a workflow. Redefining the name keeps the handle good: it then means the new definition."""

    kind = "handle"
    __slots__ = ("name", "workflow")

    def __init__(self, workflow: Workflow, name: str) -> None:
        self.workflow = workflow
        self.name = name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return self.kind == other.kind and self.workflow is other.workflow and self.name == other.name

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def __repr__(self) -> str:
        return f"<kvlab {self.kind} {self.name!r} of workflow {self.workflow.name!r}>"

    def __str__(self) -> str:
        raise self._no_text()

    def __format__(self, spec: str) -> str:
        raise self._no_text()

    def _no_text(self) -> InvalidInput:
        return InvalidInput(
            f"{self.kind} {self.name!r} is no text: it cannot be put into a string",
            hint=f"put it in the prompt's list, like [{self.name}, 'Your question.'], or print repr(…) of it",
            name=self.name,
        )


class Context(Handle):
    """A text that several agents may read. In a prompt it stands for its text."""

    kind = "context"
    __slots__ = ()


class Tool(Handle):
    """A function that is called in the run. In a prompt it stands for what it returned."""

    kind = "tool"
    __slots__ = ()


class Agent(Handle):
    """An agent or a merge. In a prompt it stands for what it generated; in ``continues=`` for its conversation."""

    kind = "agent"
    __slots__ = ()
