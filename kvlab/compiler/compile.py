"""The compiler: from a workflow to G_s. Pure: equal workflows and tokenizers give equal graphs."""

from __future__ import annotations

from kvlab.compiler.assembly import data_edges_of, nodes_of, place_prefixes, siblings_of, state_edges_of
from kvlab.compiler.context_use import lost_contexts, unused_contexts
from kvlab.compiler.graph import Graph
from kvlab.compiler.lengths import Lengths, check_lengths
from kvlab.compiler.prompts import PromptTokenizer, paths_of
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
        Tokens that a materialized prefix must add to the one below it; answers count at full length.
    max_positions
        Tokens the model has positions for.
    model
        Name of the lab's model: what an agent's ``model=`` may be.

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
    _require_model(wf, model)
    turns = turns_of(wf.contexts, wf.agents)
    paths = paths_of(turns, wf.contexts, tokenizer)
    lengths, symbols = Lengths(turns, tokenizer), Symbols()
    warnings = check_lengths(turns, paths, lengths, max_positions)
    lost = lost_contexts(turns, paths, symbols, min_shared_tokens)
    warnings += [loss.warning for loss in lost] + unused_contexts(wf.contexts, turns)
    nodes = nodes_of(turns, wf.contexts, paths, place_prefixes(turns, paths, lengths, min_shared_tokens, symbols))
    return Graph(
        name=wf.name,
        nodes=nodes,
        data_edges=data_edges_of(nodes),
        state_edges=state_edges_of(nodes, turns, lengths, lost),
        siblings=siblings_of(nodes),
        warnings=tuple(warnings),
    )


def _require_model(wf: Workflow, model: str | None) -> None:
    for definition in wf.agents.values():
        wanted = definition.generation.model if definition.generation else None
        if wanted is not None and wanted != model:
            raise GraphError(
                f"agent {definition.name!r} asks for model {wanted!r}, and a lab runs one model, "
                + (f"here {model!r}" if model else "its own"),
                hint="leave model= out, or make a lab with that model",
                agent=definition.name,
                model=wanted,
            )
