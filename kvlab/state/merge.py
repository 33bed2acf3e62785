"""Which branches can be merged exactly, and how."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.errors import MergeRefused, StateMismatch
from kvlab.state.compatibility import require_compatible
from kvlab.state.records import StateRecord
from kvlab.state.tokens import common_prefix, n_ids


def shared_prefix(states: Sequence[StateRecord]) -> int:
    """Tokens with K/V that all paths have in common, from the root. Changes nothing.

    Raises
    ------
    MergeRefused
        If there are no states.
    StateMismatch
        If they are of different models, configurations or namespaces: then equal ids are not equal K/V.
    """
    first = _require_alike(states)
    return min(common_prefix(first.path_ids, state.path_ids) for state in states)


def merge_prefix(states: Sequence[StateRecord]) -> StateRecord:
    """The longest of ``states``, if every other is a prefix of it, its unfed token included. Changes nothing.

    Raises
    ------
    MergeRefused
        With the first position where two of them part. K/V of different continuations cannot be joined exactly:
        each was computed attending to its own past.
    StateMismatch
        As :func:`shared_prefix`.
    """
    _require_alike(states)
    longest = max(states, key=lambda state: (state.n_tokens, n_ids(state.unfed)))
    text = longest.path_ids + longest.unfed
    for state in states:
        own = state.path_ids + state.unfed
        equal = common_prefix(own, text)
        if equal < n_ids(own):
            raise MergeRefused(
                f"states {state.id} and {longest.id} part at token {equal}: neither extends the other",
                hint='merge(..., how="summary") lets the model write a summary of the branches on their shared '
                "prefix, or pass their texts to an agent",
                position=equal,
            )
    return longest


def _require_alike(states: Sequence[StateRecord]) -> StateRecord:
    """The first of ``states``, if all are of one model, configuration and namespace."""
    if not states:
        raise MergeRefused("nothing to merge", hint="pass at least one state")
    first = states[0]
    for state in states:
        require_compatible(state.id, state.model, state.config, first.model, first.config)
        if state.namespace != first.namespace:
            raise StateMismatch(
                f"states {state.id} and {first.id} are of the namespaces {state.namespace!r} and {first.namespace!r}",
                hint="merge states of one namespace",
                fields=["namespace"],
            )
    return first
