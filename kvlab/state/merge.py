"""Which branches can be merged exactly, and how."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.errors import MergeRefused
from kvlab.state.records import StateRecord
from kvlab.state.tokens import common_prefix


def shared_prefix(states: Sequence[StateRecord]) -> int:
    """Tokens that all paths have in common, from the root."""
    first, *others = [state.path_ids for state in states]
    return min((common_prefix(first, other) for other in others), default=len(first) // 4)


def merge_prefix(states: Sequence[StateRecord]) -> StateRecord:
    """The longest of ``states``, if every other is a prefix of it. Changes nothing.

    Raises
    ------
    MergeRefused
        With the first position where two of them part. K/V of different continuations cannot be joined exactly:
        each was computed attending to its own past.
    """
    if not states:
        raise MergeRefused("nothing to merge", hint="pass at least one state")
    longest = max(states, key=lambda state: state.n_tokens)
    for state in states:
        equal = common_prefix(state.path_ids, longest.path_ids)
        if equal < state.n_tokens:
            raise MergeRefused(
                f"states {state.id} and {longest.id} part at token {equal}: neither extends the other",
                hint='merge(..., how="summary") lets the model write a summary of the branches on their shared '
                "prefix, or pass their texts to an agent",
                position=equal,
            )
    return longest
