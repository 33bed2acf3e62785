"""The Workflow: agents, the texts they read, and whose conversation each continues."""

from __future__ import annotations

import html
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, cast

from kvlab.errors import InvalidInput
from kvlab.workflow.checks import (
    checked_integer,
    checked_name,
    checked_namespace,
    checked_seconds,
    checked_temperature,
    checked_text,
)
from kvlab.workflow.definitions import (
    AgentDefinition,
    AnswerPart,
    ContextDefinition,
    Definition,
    Generation,
    MergeDefinition,
    MergeHow,
    StopCondition,
    ToolDefinition,
)
from kvlab.workflow.handles import Agent, Context, Handle, Tool
from kvlab.workflow.keywords import refuse_unknown_keywords
from kvlab.workflow.parts import Prompt, agent_name, parts_of, refuse_leaked_handles
from kvlab.workflow.tools import checked_call

SUMMARY_INSTRUCTION = "Summarize the answers above in one short paragraph."

_log = logging.getLogger("kvlab")

_KINDS: dict[type, str] = {
    ContextDefinition: "context",
    AgentDefinition: "agent",
    MergeDefinition: "merge",
    ToolDefinition: "tool",
}


class Workflow:
    """A multi-agent workflow, written down before anything runs.

    Handles refer to their definition by name, so a cell that is run again replaces what it defined, and everything
    that refers to it means the new definition; ``notices`` says what was replaced.

    Examples
    --------
    >>> wf = Workflow("review")
    >>> paper = wf.context("paper", "Caches are thrown away.")
    >>> plan = wf.agent("planner", [paper, "Name two weaknesses."], max_new_tokens=32)
    >>> sides = [wf.agent(f"reviewer-{i}", f"Argue weakness {i}.", continues=plan) for i in (1, 2)]
    >>> wf.agent("editor", [paper, *sides, "Write the verdict."])
    <kvlab agent 'editor' of workflow 'review'>
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name("workflow", name)
        self._contexts: dict[str, ContextDefinition] = {}
        self._agents: dict[str, Definition] = {}
        self._notices: list[str] = []

    @property
    def contexts(self) -> Mapping[str, ContextDefinition]:
        """Definitions of the contexts by name, in the order of their first definition. A live, read-only view."""
        return MappingProxyType(self._contexts)

    @property
    def agents(self) -> Mapping[str, Definition]:
        """Definitions of agents, merges and tools by name, in the order of their first definition."""
        return MappingProxyType(self._agents)

    @property
    def notices(self) -> tuple[str, ...]:
        """What was redefined, oldest first."""
        return tuple(self._notices)

    def __getitem__(self, name: str) -> Context | Agent | Tool:
        """The handle of that name."""
        if name in self._contexts:
            return Context(self, name)
        if name in self._agents:
            return Tool(self, name) if isinstance(self._agents[name], ToolDefinition) else Agent(self, name)
        known = ", ".join([*self._contexts, *self._agents]) or "none yet"
        raise InvalidInput(f"workflow {self.name!r} has nothing named {name!r}", hint=f"its names are: {known}")

    def context(self, name: str, text: str, **unknown: Any) -> Context:
        """Name a text that agents read. Put it first in their prompts, and its K/V is computed once.

        Raises
        ------
        InvalidInput
            For an empty or unencodable text, an unusable name or an unknown keyword.
        """
        refuse_unknown_keywords(f"context {name!r}", unknown, _keywords(Workflow.context))
        checked = checked_text(f"the text of context {checked_name('context', name)!r}", text)
        refuse_leaked_handles(self, f"the text of context {name!r}", checked)
        self._replace(name, "context")
        self._contexts[name] = ContextDefinition(name, checked)
        return Context(self, name)

    def agent(
        self,
        name: str,
        prompt: Prompt,
        *,
        continues: Agent | None = None,
        role: str | None = None,
        unless: tuple[Agent, str] | None = None,
        model: str | None = None,
        namespace: str | None = None,
        max_new_tokens: int = 64,
        temperature: float = 0,
        seed: int = 0,
        **unknown: Any,
    ) -> Agent:
        """Define one turn: a user turn, and the answer to it.

        Parameters
        ----------
        prompt
            Text, a context, an agent (its generated text), or a list of these, joined by a blank line.
        continues
            The agent whose conversation this turn goes on, on its state.
        role
            Text of the system turn. Without it the chat template decides. Not with ``continues``.
        unless
            ``(critic, "DONE")``: skip this turn if the critic's answer contains that text, letter by letter. A turn that
            is skipped stands for the one it continues: its state is that one's, and so is its text where others read
            it. With ``continues``, on which it then stands.
        model
            Name of the model; None is the lab's.
        namespace
            Its states are used by nobody of another one, and it uses none of theirs: what it reads or continues there is
            prefilled again. None is the run's own, to whomever it continues.
        max_new_tokens
            At least 1 token is generated and at most this many.
        temperature
            0 is greedy.
        seed
            With the agent's name and the position it alone determines each draw.

        Raises
        ------
        InvalidInput
            Naming the agent and what cannot be meant.
        """
        where = f"agent {name!r}"
        refuse_unknown_keywords(where, unknown, _keywords(Workflow.agent))
        checked_name("agent", name)
        parent = None if continues is None else agent_name(self, f"continues= of {where}", continues)
        if role is not None:
            checked_text(f"role= of {where}", role)
            refuse_leaked_handles(self, f"role= of {where}", role)
            if parent is not None:
                raise InvalidInput(
                    f"{where} continues {parent!r}, whose conversation has its system turn: role= cannot be given",
                    hint=f"give role= to the agent that starts the conversation, or put it into the prompt of {name}",
                )
        parts = parts_of(self, where, prompt)
        condition = self._stop_condition(where, unless, parent)
        if parent == name or AnswerPart(name) in parts or (condition is not None and condition.agent == name):
            raise InvalidInput(f"{where} refers to itself", hint="give the later turn another name")
        generation = _generation(where, model, max_new_tokens, temperature, seed, namespace)
        self._replace(name, "agent")
        self._agents[name] = AgentDefinition(name, parts, parent, role, generation, condition)
        return Agent(self, name)

    def merge(
        self,
        name: str,
        agents: Sequence[Agent],
        *,
        how: Literal["prefix", "summary"] = "prefix",
        instruction: str | None = None,
        model: str | None = None,
        namespace: str | None = None,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        **unknown: Any,
    ) -> Agent:
        """Make one conversation of several branches.

        ``how="prefix"`` is exact and generates nothing: the branches must lie on one conversation, and the longest is
        taken. ``how="summary"`` goes on from what the branches share: their common ancestor by ``continues=``, or,
        where there is none, the parts their first prompts begin with. The user turn there is every answer the
        branches gave after it, then ``instruction``; what the model answers is the merged text.

        The generation keywords are those of :meth:`agent`, and only for ``"summary"``.

        Raises
        ------
        InvalidInput
            Naming the merge and what cannot be meant.
        """
        where = f"merge {name!r}"
        refuse_unknown_keywords(where, unknown, _keywords(Workflow.merge))
        checked_name("merge", name)
        if how not in ("prefix", "summary"):
            raise InvalidInput(f'how= of {where} must be "prefix" or "summary", not {how!r}')
        if isinstance(agents, (str, Handle)) or not isinstance(agents, Sequence):
            raise InvalidInput(f"{where} takes a list of agents", hint=f'wf.merge("{name}", [a, b], how="summary")')
        branches = tuple(
            agent_name(self, f"branch {index + 1} of {where}", agent) for index, agent in enumerate(agents)
        )
        if len(set(branches)) < 2 or len(set(branches)) < len(branches):
            raise InvalidInput(f"{where} needs at least two different agents, not {list(branches)}")
        if name in branches:
            raise InvalidInput(f"{where} refers to itself", hint="give it another name")
        given: dict[str, Any] = {"instruction": instruction, "model": model, "max_new_tokens": max_new_tokens}
        given |= {"temperature": temperature, "seed": seed, "namespace": namespace}
        chosen = {keyword: value for keyword, value in given.items() if value is not None}
        if how == "prefix":
            if chosen:
                raise InvalidInput(
                    f'{where} with how="prefix" generates nothing: {next(iter(chosen))}= has no meaning there',
                    hint='use how="summary", or leave it out',
                )
            definition = MergeDefinition(name, branches, cast("MergeHow", how), "", None)
        else:
            text = checked_text(f"instruction= of {where}", chosen.pop("instruction", SUMMARY_INSTRUCTION))
            refuse_leaked_handles(self, f"instruction= of {where}", text)
            generation = _generation(
                where, **{"model": None, "max_new_tokens": 64, "temperature": 0, "seed": 0, **chosen}
            )
            definition = MergeDefinition(name, branches, cast("MergeHow", how), text, generation)
        self._replace(name, "merge")
        self._agents[name] = definition
        return Agent(self, name)

    def tool(
        self,
        name: str,
        given: Prompt,
        *,
        call: str | Callable[..., str],
        pause_seconds: float = 0,
        hold_seconds: float = 60,
        max_tokens: int = 64,
        **unknown: Any,
    ) -> Tool:
        """Define a call between two turns. Whoever reads it waits for it, and the state it goes on from is idle.

        Parameters
        ----------
        given
            Text, a context, an agent (its answer), a tool (its text), or a list of these: the function's arguments.
        call
            A function from texts to a text, called in this process on a thread of its own; or the name of one of kvlab's
            (:data:`kvlab.workflow.tools.TOOLS`), which a YAML file can hold. Both flows call it, each in its run, so
            their answers are only equal if it answers the same each time.
        pause_seconds
            Waited before the call, so that the gap can be had without a slow function.
        hold_seconds
            States that wait for it stay in memory so long at most, whatever else wants room. After that they may be
            evicted, and come back when they are used.
        max_tokens
            A longer text is an error, so that lengths are known before the run.

        Raises
        ------
        InvalidInput
            Naming the tool and what cannot be meant.
        """
        where = f"tool {name!r}"
        refuse_unknown_keywords(where, unknown, _keywords(Workflow.tool))
        checked_name("tool", name)
        parts = parts_of(self, where, given)
        if AnswerPart(name) in parts:
            raise InvalidInput(f"{where} refers to itself", hint="give it another name")
        definition = ToolDefinition(
            name,
            parts,
            checked_call(where, call),
            checked_seconds(f"pause_seconds= of {where}", pause_seconds),
            checked_seconds(f"hold_seconds= of {where}", hold_seconds),
            checked_integer(f"max_tokens= of {where}", max_tokens, 1),
        )
        self._replace(name, "tool")
        self._agents[name] = definition
        return Tool(self, name)

    def to_yaml(self) -> str:
        """YAML text that :meth:`from_yaml` reads: contexts by name, then agents, merges and tools in their order.

        Raises
        ------
        InvalidInput
            For a tool that calls a function of the user's own.
        """
        from kvlab.workflow.document import to_yaml

        return to_yaml(self)

    @staticmethod
    def from_yaml(text: str) -> Workflow:
        """The workflow that a YAML text defines.

        Raises
        ------
        InvalidInput
            Naming the place that cannot be meant.
        """
        from kvlab.workflow.document import from_yaml

        return from_yaml(text)

    def _stop_condition(self, where: str, told: Any, parent: str | None) -> StopCondition | None:
        if told is None:
            return None
        if not isinstance(told, Sequence) or isinstance(told, str) or len(told) != 2:
            raise InvalidInput(f"unless= of {where} must be an agent and a text", hint='unless=(critic, "DONE")')
        if parent is None:
            raise InvalidInput(
                f"unless= of {where} needs continues=: a turn that is skipped stands for the one it continues",
                hint="continue the conversation whose last answer is to stand",
            )
        agent, text = told
        words = checked_text(f"the text in unless= of {where}", text)
        return StopCondition(agent_name(self, f"unless= of {where}", agent), words)

    def _replace(self, name: str, kind: str) -> None:
        """Note a redefinition; a name means one thing, so what it meant as another kind is dropped."""
        before: ContextDefinition | Definition | None = self._contexts.get(name) or self._agents.get(name)
        if before is None:
            return
        was = _KINDS[type(before)]
        notice = f"workflow {self.name!r}: {was} {name!r} was replaced by a new {kind} of that name"
        self._notices.append(notice)
        _log.info(notice)
        if was == "context" and kind != "context":
            del self._contexts[name]
        elif was != "context" and kind == "context":
            del self._agents[name]

    def __repr__(self) -> str:
        n_tools = sum(isinstance(definition, ToolDefinition) for definition in self._agents.values())
        size = f"{_counted(len(self._contexts), 'context')}, {_counted(len(self._agents) - n_tools, 'agent')}"
        size += f", {_counted(n_tools, 'tool')}" if n_tools else ""
        return f"<kvlab workflow {self.name!r}: {size}>"

    def _repr_html_(self) -> str:
        rows = [f"<b>workflow {html.escape(self.name)}</b>"]
        rows += [f"context <i>{html.escape(c.name)}</i>, {len(c.text):,} characters" for c in self._contexts.values()]
        rows += [_line(definition) for definition in self._agents.values()]
        return "<br>".join(rows)


def _generation(
    where: str, model: Any, max_new_tokens: Any, temperature: Any, seed: Any, namespace: Any = None
) -> Generation:
    if model is not None:
        checked_text(f"model= of {where}", model)
    return Generation(
        max_new_tokens=checked_integer(f"max_new_tokens= of {where}", max_new_tokens, 1),
        temperature=checked_temperature(f"temperature= of {where}", temperature),
        seed=checked_integer(f"seed= of {where}", seed, 0),
        model=model,
        namespace=None if namespace is None else checked_namespace(f"namespace= of {where}", namespace),
    )


def _keywords(function: Callable[..., Any]) -> list[str]:
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        p.name for p in inspect.signature(function).parameters.values() if p.kind not in variable and p.name != "self"
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _line(definition: Definition) -> str:
    name = html.escape(definition.name)
    if isinstance(definition, MergeDefinition):
        return f"merge <i>{name}</i> ({definition.how}) of {html.escape(', '.join(definition.branches))}"
    if isinstance(definition, ToolDefinition):
        called = (
            definition.call if isinstance(definition.call, str) else getattr(definition.call, "__name__", "a function")
        )
        return f"tool <i>{name}</i> calls {html.escape(called)}, up to {definition.max_tokens} tokens"
    after = f" continues {html.escape(definition.continues)}" if definition.continues else ""
    stop = ""
    if definition.unless is not None:
        stop = f", unless {html.escape(definition.unless.agent)} says {html.escape(repr(definition.unless.text))}"
    return f"agent <i>{name}</i>{after}, up to {definition.generation.max_new_tokens} tokens{stop}"
