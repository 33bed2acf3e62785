"""A workflow as YAML, and back. What is read goes through :class:`Workflow`, so it is checked as what is written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from kvlab.errors import InvalidInput
from kvlab.workflow.definitions import (
    AnswerPart,
    ContextPart,
    Definition,
    Generation,
    MergeDefinition,
    Part,
    TextPart,
    ToolDefinition,
)
from kvlab.workflow.tools import TOOLS
from kvlab.workflow.workflow import Workflow

KEYS = ("name", "contexts", "agents")
GENERATION_KEYS = ("model", "namespace", "max_new_tokens", "temperature", "seed")
AGENT_KEYS = ("name", "prompt", "continues", "role", "unless", *GENERATION_KEYS)
UNLESS_KEYS = ("agent", "says")
MERGE_KEYS = ("name", "merge", "how", "instruction", *GENERATION_KEYS)
TOOL_KEYS = ("name", "tool", "given", "pause_seconds", "hold_seconds", "max_tokens")
_DEFAULTS = Generation()
_EXAMPLE = "`kvlab workloads review` prints an example"


def to_yaml(workflow: Workflow) -> str:
    """``workflow`` as YAML text: contexts by name, then agents, merges and tools in the order of their definition."""
    document = {
        "name": workflow.name,
        "contexts": {context.name: context.text for context in workflow.contexts.values()},
        "agents": [_written(definition) for definition in workflow.agents.values()],
    }
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def from_yaml(text: str) -> Workflow:
    """The workflow that ``text`` (YAML, as :func:`to_yaml` writes it) defines.

    Raises
    ------
    InvalidInput
        Naming the place: no YAML, a key that is unknown or there twice, an agent that is used before it is defined, and
        whatever :class:`Workflow` refuses.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none; brackets without end
        raise InvalidInput(f"this is not YAML: {error}", hint=_EXAMPLE) from error
    told = _mapping("a workflow", document, KEYS)
    workflow = Workflow(told.get("name"))  # type: ignore[arg-type]  # it checks what it is given
    contexts = told.get("contexts") or {}
    if not isinstance(contexts, Mapping):
        raise InvalidInput("contexts: must map names to texts", hint=_EXAMPLE)
    for name, content in contexts.items():
        workflow.context(name, content)
    agents = told.get("agents")
    if not isinstance(agents, list) or not agents:
        raise InvalidInput("agents: must be a list of agents, at least one", hint=_EXAMPLE)
    for number, agent in enumerate(agents, start=1):
        _read(workflow, f"agent {number}", agent)
    return workflow


def _written(definition: Definition) -> dict[str, Any]:
    told: dict[str, Any] = {"name": definition.name}
    if isinstance(definition, ToolDefinition):
        if not isinstance(definition.call, str):
            raise InvalidInput(
                f"tool {definition.name!r} calls a function of yours, which a YAML file cannot hold",
                hint=f"keep this workflow in a Python file, or name one of: {', '.join(TOOLS)}",
            )
        told |= {"tool": definition.call, "given": [_written_part(part) for part in definition.parts]}
        return told | {key: getattr(definition, key) for key in TOOL_KEYS[3:]}
    if isinstance(definition, MergeDefinition):
        told |= {"merge": list(definition.branches), "how": definition.how}
        told |= {"instruction": definition.instruction} if definition.instruction else {}
    else:
        told |= {"continues": definition.continues} if definition.continues is not None else {}
        told |= {"role": definition.role} if definition.role is not None else {}
        told["prompt"] = [_written_part(part) for part in definition.parts]
        if definition.unless is not None:
            told["unless"] = {"agent": definition.unless.agent, "says": definition.unless.text}
    drawn = definition.generation
    for key in GENERATION_KEYS if drawn is not None else ():
        if getattr(drawn, key) != getattr(_DEFAULTS, key):
            told[key] = getattr(drawn, key)
    return told


def _written_part(part: Part) -> Any:
    match part:
        case TextPart(text):
            return text
        case ContextPart(context):
            return {"context": context}
        case AnswerPart(agent):
            return {"agent": agent}


def _read(workflow: Workflow, where: str, told: Any) -> None:
    merge, tool = (isinstance(told, Mapping) and key in told for key in ("merge", "tool"))
    values = dict(_mapping(where, told, MERGE_KEYS if merge else TOOL_KEYS if tool else AGENT_KEYS))
    name = values.pop("name", None)
    where = f"agent {name!r}"
    if merge:
        branches = values.pop("merge")
        if not isinstance(branches, list):
            raise InvalidInput(f"merge: of {where} must be a list of agents", hint=_EXAMPLE)
        workflow.merge(name, [_agent(workflow, where, branch) for branch in branches], **values)
        return
    if tool:
        workflow.tool(name, _read_parts(workflow, where, values.pop("given", None)), call=values.pop("tool"), **values)
        return
    if "continues" in values:
        values["continues"] = _agent(workflow, where, values["continues"])
    if "unless" in values:
        condition = _mapping(f"unless: of {where}", values["unless"], UNLESS_KEYS)
        values["unless"] = (_agent(workflow, where, condition.get("agent")), condition.get("says"))
    workflow.agent(name, _read_parts(workflow, where, values.pop("prompt", None)), **values)


def _read_parts(workflow: Workflow, where: str, told: Any) -> list[Any]:
    return [_read_part(workflow, where, part) for part in (told if isinstance(told, list) else [told])]


def _read_part(workflow: Workflow, where: str, part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    (key, name), *more = part.items() or [(None, None)]
    if more or key not in ("context", "agent"):
        raise InvalidInput(
            f"a part of the prompt of {where} has the keys {list(part)}", hint="a text, or one of context: and agent:"
        )
    if key == "agent":
        return _agent(workflow, where, name)
    if not isinstance(name, str) or name not in workflow.contexts:
        raise InvalidInput(f"{where} reads context {name!r}, which is not defined", hint="name it under contexts:")
    return workflow[name]


def _agent(workflow: Workflow, where: str, name: Any) -> Any:
    if not isinstance(name, str) or name not in workflow.agents:
        raise InvalidInput(
            f"{where} refers to agent {name!r}, which is not defined before it", hint="put it further up"
        )
    return workflow[name]


def _mapping(where: str, told: Any, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(told, Mapping):
        raise InvalidInput(f"{where} must be a mapping, not {type(told).__name__}", hint=_EXAMPLE)
    unknown = [str(key) for key in told if key not in keys]
    if unknown:
        raise InvalidInput(f"{where} has the unknown key {unknown[0]!r}", hint=f"one of: {', '.join(keys)}")
    return told


class _Loader(yaml.SafeLoader):
    """Plain data only, and no key twice: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as PyYAML calls it
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, which people can read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
