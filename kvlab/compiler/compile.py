"""The compiler: from a workflow to G_s. Pure: equal workflows and tokenizers give equal graphs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kvlab.compiler.assembly import data_edges_of, nodes_of, place_prefixes, siblings_of, state_edges_of
from kvlab.compiler.context_use import LostContext, lost_contexts, unused_contexts
from kvlab.compiler.graph import Graph
from kvlab.compiler.lengths import Lengths, check_lengths
from kvlab.compiler.prompts import PromptTokenizer, Spoken, paths_of
from kvlab.compiler.symbols import Symbols
from kvlab.compiler.turns import turns_of
from kvlab.errors import GraphError, InvalidInput
from kvlab.workflow.workflow import Workflow

MIN_SHARED_TOKENS = 32
"""A materialized prefix costs a task of its own (some 10 ms); fewer tokens are prefilled again in less."""


def compile_workflow(
    wf: Workflow,
    tokenizer: PromptTokenizer,
    *,
    min_shared_tokens: int = MIN_SHARED_TOKENS,
    max_positions: int,
    model: str | None = None,
    models: Mapping[str, Spoken] = MappingProxyType({}),
) -> Graph:
    """G_s = (V, E_d, E_s) of ``wf``. Changes nothing.

    1. *turns*: names are looked up, cycles refused, merges written as turns.
    2. *prompts*: each turn's path from the root, every text tokenized once and alone.
    3. *lengths*: paths against the positions of the model.
    4. *shared prefixes*: beginnings that two or more turns have in common become ``materialize`` nodes.
    5. *assembly*: nodes, edges, siblings.

    Parameters
    ----------
    min_shared_tokens
        Tokens that a materialized prefix must add to the one below it; answers count at full length. Models beside the
        lab's own may have another :attr:`Spoken.min_shared_tokens`.
    max_positions
        Tokens the model has positions for.
    model
        Name of the lab's own model.
    models
        What an agent's ``model=`` may be, the lab's own included, where it has more than that one.

    Raises
    ------
    GraphError
        Naming the agent or context at fault.
    MergeRefused
        For a prefix merge of branches that are not on one conversation.
    ContextTooLong
        For an agent that cannot fit.
    """
    if min_shared_tokens < 1:
        raise InvalidInput(f"min_shared_tokens= must be at least 1, not {min_shared_tokens}")
    if not wf.agents:
        raise GraphError(f"workflow {wf.name!r} has no agents", hint='add one: wf.agent("name", "prompt")')
    _require_model(wf, model, models)
    # One model may have several names, the lab's own too.
    known = {name: "" if one.identity.name == model else one.identity.name for name, one in models.items()}
    turns = turns_of(wf.contexts, wf.agents, known if model is None else {**known, model: ""})
    spoken = {"": (tokenizer, max_positions)} | {
        known[name]: (one.tokenizer, one.max_positions) for name, one in models.items() if known[name]
    }
    paths = paths_of(turns, wf.contexts, {name: tokens for name, (tokens, _) in spoken.items()})
    lengths = {name: Lengths(turns, tokens, name) for name, (tokens, _) in spoken.items()}
    least = {"": min_shared_tokens} | {
        known[name]: one.min_shared_tokens or min_shared_tokens for name, one in models.items() if known[name]
    }
    warnings: list[str] = []
    lost: list[LostContext] = []
    symbols = Symbols()
    for realm in dict.fromkeys(turn.realm for turn in turns.values()):
        mine = {turn.name: turn for turn in turns.values() if turn.realm == realm}
        warnings += check_lengths(mine, paths, lengths[realm[0]], spoken[realm[0]][1])
        lost += lost_contexts(mine, {turn: paths[turn] for turn in mine}, symbols, least[realm[0]])
    warnings += [loss.warning for loss in lost] + unused_contexts(wf.contexts, turns)
    nodes = nodes_of(turns, wf.contexts, paths, place_prefixes(turns, paths, lengths, least, symbols))
    return Graph(
        name=wf.name,
        nodes=nodes,
        data_edges=data_edges_of(nodes),
        state_edges=state_edges_of(nodes, turns, lengths, lost, {known[name]: one for name, one in models.items()}),
        siblings=siblings_of(nodes),
        warnings=tuple(warnings),
    )


def _require_model(wf: Workflow, model: str | None, models: Mapping[str, Spoken]) -> None:
    for definition in wf.agents.values():
        wanted = definition.generation.model if definition.generation else None
        if wanted is not None and wanted != model and wanted not in models:
            known = ", ".join(map(repr, dict.fromkeys([*([model] if model else []), *models]))) or "its own"
            raise GraphError(
                f"agent {definition.name!r} asks for model {wanted!r}, and this lab has {known}",
                hint=f"lab.add_model({wanted!r}) loads it beside the lab's own; or leave model= out",
                agent=definition.name,
                model=wanted,
            )
