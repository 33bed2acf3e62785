"""From pieces to token ids, once the outputs they speak of are known. Both flows feed exactly these ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kvlab.compiler.graph import Known, Node, OutputOf, Piece, RawOutputOf, TurnOf
from kvlab.compiler.prompts import PromptTokenizer
from kvlab.errors import GraphError
from kvlab.state.tokens import BYTES_PER_ID


def resolve(
    pieces: Iterable[Piece], outputs: Mapping[str, bytes], tokenizer: PromptTokenizer, skipped: Collection[str] = ()
) -> bytes:
    """Packed ids of ``pieces``.

    Parameters
    ----------
    outputs
        For each agent that has run, all ids it sampled, packed: the last one (which has no K/V) included. For one that
        was skipped, the output of the one it stands for.
    skipped
        Agents that did not run because their stop condition held.

    Raises
    ------
    GraphError
        Naming an agent whose output is needed and not in ``outputs``.
    """
    return b"".join(_ids(piece, outputs, tokenizer, skipped) for piece in pieces)


def state_ids(
    node: Node, outputs: Mapping[str, bytes], tokenizer: PromptTokenizer, skipped: Collection[str] = ()
) -> bytes:
    """Packed ids of every token with K/V in the state that ``node`` leaves, from the root.

    ``outputs`` must have the node's own output, unless it generates nothing.
    """
    if node.id in skipped:
        return resolve(node.full_pieces[: -len(node.pieces)], outputs, tokenizer, skipped)
    generated = _output(node.id, outputs)[:-BYTES_PER_ID] if node.sampling.max_new_tokens else b""
    return resolve(node.full_pieces, outputs, tokenizer, skipped) + generated


def _ids(piece: Piece, outputs: Mapping[str, bytes], tokenizer: PromptTokenizer, skipped: Collection[str]) -> bytes:
    if isinstance(piece, Known):
        return piece.ids
    if isinstance(piece, TurnOf):
        return b"" if piece.agent in skipped else resolve(piece.pieces, outputs, tokenizer, skipped)
    output = _output(piece.agent, outputs)
    if isinstance(piece, OutputOf):
        return tokenizer.without_control(output)
    if isinstance(piece, RawOutputOf):
        return output[:-BYTES_PER_ID]
    unfed, closing = output[-BYTES_PER_ID:], tokenizer.close_answer()
    return unfed + (closing[BYTES_PER_ID:] if unfed == closing[:BYTES_PER_ID] else closing)


def _output(agent: str, outputs: Mapping[str, bytes]) -> bytes:
    if agent not in outputs:
        raise GraphError(f"the output of {agent!r} is needed and not known", hint="run it first", agent=agent)
    return outputs[agent]
