"""From what a user writes in a prompt to its parts: handles become names, and never text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvlab.errors import InvalidInput
from kvlab.workflow.checks import checked_text
from kvlab.workflow.definitions import AnswerPart, ContextPart, Part, TextPart
from kvlab.workflow.handles import Agent, Context, Handle, Tool

if TYPE_CHECKING:
    from kvlab.workflow.workflow import Workflow

Prompt = str | Context | Agent | Tool | Sequence[str | Context | Agent | Tool]
"""One user turn: its parts are joined by a blank line."""


def parts_of(workflow: Workflow, where: str, prompt: Any) -> tuple[Part, ...]:
    """The parts of ``prompt``, each checked; errors name ``where`` and the part's number."""
    listed = [prompt] if isinstance(prompt, (str, Handle)) else prompt
    if not isinstance(listed, Sequence) or isinstance(listed, (bytes, bytearray, memoryview)):
        raise InvalidInput(
            f"the prompt of {where} must be text, a context, an agent or a list of these, not {type(prompt).__name__}"
        )
    if not listed:
        raise InvalidInput(f"the prompt of {where} is empty", hint="give it text, a context or an agent")
    return tuple(
        _part(workflow, f"part {index + 1} of the prompt of {where}", part) for index, part in enumerate(listed)
    )


def agent_name(workflow: Workflow, where: str, handle: Any) -> str:
    """The name of an agent of this workflow."""
    if not isinstance(handle, Agent):
        kind = f"a {handle.kind}" if isinstance(handle, Handle) else f"{type(handle).__name__}"
        raise InvalidInput(
            f"{where} must be an agent, not {kind}", hint="pass what wf.agent(…) or wf.merge(…) returned"
        )
    _refuse_foreign(workflow, where, handle)
    return handle.name


def refuse_leaked_handles(workflow: Workflow, where: str, text: str) -> None:
    """A list of handles in an f-string prints their reprs, and that is never what was meant."""
    if "<kvlab " not in text:
        return
    handles: list[Handle] = [Context(workflow, name) for name in workflow.contexts]
    handles += [workflow[name] for name in workflow.agents]
    for handle in handles:
        if repr(handle) in text:
            raise InvalidInput(
                f"{where} contains the printed form of {handle!r}",
                hint=f"put it in the prompt's list, like [{handle.name}, 'Your question.'], not into a string",
            )


def _part(workflow: Workflow, where: str, part: Any) -> Part:
    if isinstance(part, Handle):
        _refuse_foreign(workflow, where, part)
        return ContextPart(part.name) if isinstance(part, Context) else AnswerPart(part.name)
    if isinstance(part, (list, tuple)):
        raise InvalidInput(
            f"{where} is a {type(part).__name__}", hint="put a star before it: [paper, *reviewers, 'text']"
        )
    text = checked_text(where, part)
    refuse_leaked_handles(workflow, where, text)
    return TextPart(text)


def _refuse_foreign(workflow: Workflow, where: str, handle: Handle) -> None:
    if handle.workflow is not workflow:
        raise InvalidInput(
            f"{where} is {handle!r}, which belongs to another workflow than {workflow!r}",
            hint="define it in this workflow; if the workflow was made anew, define its parts anew too",
        )
