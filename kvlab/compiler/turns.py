"""From definitions to turns: names looked up, cycles refused, merges written as turns, in an order that can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kvlab.compiler.graph import Unless
from kvlab.compiler.merges import summary_parts, tip_of_prefix_merge
from kvlab.errors import GraphError
from kvlab.workflow.definitions import (
    AgentDefinition,
    AnswerPart,
    ContextDefinition,
    ContextPart,
    Definition,
    Generation,
    MergeDefinition,
    Part,
    ToolDefinition,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One agent's turn, or a merge as the turn that it is.

    Attributes
    ----------
    continues
        Name of the turn whose conversation it goes on with, or None.
    parts
        What its user turn says; empty for a prefix merge.
    generation
        None for a prefix merge, which generates nothing.
    branches
        Names of what a merge merges.
    speaker
        Whose generated ids its text is: its own name, or for a prefix merge that of its longest branch.
    unless
        When it is skipped, by the name of who speaks; ``instead`` is the speaker of the turn that it continues.
    tool
        Set where it is no turn of a model but a call: ``parts`` are what it is given.
    model
        Name of its model; empty for the lab's own.
    namespace
        Within that of the run; empty for the run's own.
    start
        The turn on whose state it starts: the nearest one of its conversation that has the same model and namespace.
    """

    name: str
    continues: str | None
    role: str | None
    parts: tuple[Part, ...]
    generation: Generation | None
    branches: tuple[str, ...]
    speaker: str
    unless: Unless | None = None
    tool: ToolDefinition | None = None
    model: str = ""
    namespace: str = ""
    start: str | None = None

    @property
    def max_tokens(self) -> int:
        """Most ids that its text has."""
        if self.tool is not None:
            return self.tool.max_tokens
        return self.generation.max_new_tokens if self.generation is not None else 0

    @property
    def realm(self) -> tuple[str, str]:
        """Model and namespace: what two turns have in common where one can start from the other's state."""
        return self.model, self.namespace

    @property
    def generates(self) -> bool:
        """Whether the model runs for it."""
        return self.generation is not None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the turns whose text it reads, each once."""
        return tuple(dict.fromkeys(part.agent for part in self.parts if isinstance(part, AnswerPart)))


def turns_of(
    contexts: Mapping[str, ContextDefinition],
    agents: Mapping[str, Definition],
    models: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Turn]:
    """Every agent's turn by name: each after all it depends on, else in the order of definition.

    ``models`` has what :attr:`Turn.model` is for each name that an agent's ``model=`` may have.

    Raises
    ------
    GraphError
        For a name that is not defined (any more), agents that wait for each other, or a turn that may be skipped with
        another model or namespace than the one it would stand for; names them.
    MergeRefused
        For a prefix merge of branches that are not on one conversation.
    """
    for definition in agents.values():
        _require_names(definition, contexts, agents)
    turns: dict[str, Turn] = {}
    for name in _in_order({name: _needs(definition) for name, definition in agents.items()}):
        turns[name] = _in_its_realm(_turn(agents[name], turns), turns, models)
    return turns


def _in_its_realm(turn: Turn, turns: Mapping[str, Turn], models: Mapping[str, str]) -> Turn:
    if turn.tool is not None:
        return turn
    before = turns[turn.continues] if turn.continues is not None else None
    if turn.generation is None:
        realm = before.realm if before is not None else ("", "")
    else:
        model = models[turn.generation.model] if turn.generation.model is not None else ""
        realm = (model, turn.generation.namespace or "")
    if turn.unless is not None and before is not None and before.realm != realm:
        what = "model" if before.model != realm[0] else "namespace"
        raise GraphError(
            f"agent {turn.name!r} may be skipped and would stand for {before.name!r}, which has another {what}",
            hint=f"give both the same {what}=, or leave unless= of {turn.name!r} out",
            agent=turn.name,
        )
    start = before
    while start is not None and start.realm != realm:
        start = turns[start.continues] if start.continues is not None else None
    return replace(turn, model=realm[0], namespace=realm[1], start=start.name if start is not None else None)


def _turn(definition: Definition, turns: Mapping[str, Turn]) -> Turn:
    name = definition.name
    if isinstance(definition, ToolDefinition):
        return Turn(name, None, None, definition.parts, None, (), name, tool=definition)
    if isinstance(definition, AgentDefinition):
        stop = definition.unless
        unless = None
        if stop is not None and definition.continues is not None:
            unless = Unless(turns[stop.agent].speaker, stop.text, turns[definition.continues].speaker)
        continues, role = definition.continues, definition.role
        return Turn(name, continues, role, definition.parts, definition.generation, (), name, unless)
    if definition.how == "prefix":
        tip = tip_of_prefix_merge(definition, turns)
        return Turn(name, tip, None, (), None, definition.branches, turns[tip].speaker)
    start = summary_parts(definition, turns)
    return Turn(name, start.continues, start.role, start.parts, definition.generation, definition.branches, name)


def _needs(definition: Definition) -> tuple[str, ...]:
    if isinstance(definition, MergeDefinition):
        return definition.branches
    read = tuple(part.agent for part in definition.parts if isinstance(part, AnswerPart))
    if isinstance(definition, ToolDefinition):
        return read
    continued = (definition.continues,) if definition.continues else ()
    condition = (definition.unless.agent,) if definition.unless is not None else ()
    return continued + read + condition


def _require_names(
    definition: Definition, contexts: Mapping[str, ContextDefinition], agents: Mapping[str, Definition]
) -> None:
    wanted = [("agent", name) for name in _needs(definition)]
    if not isinstance(definition, MergeDefinition):
        wanted += [("context", part.context) for part in definition.parts if isinstance(part, ContextPart)]
    for kind, name in wanted:
        if name not in (agents if kind == "agent" else contexts):
            raise GraphError(
                f"agent {definition.name!r} needs the {kind} {name!r}, which the workflow does not have",
                hint=f"define the {kind} {name!r} again, or define {definition.name!r} without it",
                agent=definition.name,
                missing=name,
            )


def _in_order(needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names so that each comes after its needs; depth first without recursion, so that long chains are no matter."""
    order: dict[str, None] = {}
    for start in needs:
        trail: dict[str, None] = {}
        current = start
        while True:
            missing = next((name for name in needs[current] if name not in order), None)
            if missing is None:
                order[current] = None
                if not trail:
                    break
                current, _ = trail.popitem()
            else:
                trail[current] = None
                if missing in trail:
                    names = list(trail)
                    cycle = [*names[names.index(missing) :], missing]
                    raise GraphError(
                        f"agents wait for each other: {' needs '.join(map(repr, cycle))}",
                        hint="define one of them again without the one it needs; one of them may have closed a loop",
                        agents=cycle[:-1],
                    )
                current = missing
    return list(order)
