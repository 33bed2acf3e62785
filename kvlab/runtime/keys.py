"""Dask keys of segments: ``kv-<recipe>.g<generation>``.

Submitting a key that Dask knows returns the old result, its old error too. So every new attempt to make a segment by
another road takes the next generation, and the catalog knows which generations live.
"""

from __future__ import annotations

PREFIX = "kv-"


def segment_key(recipe: str, generation: int) -> str:
    """The key of one generation of a segment."""
    return f"{PREFIX}{recipe}.g{generation}"


def recipe_in(key: object) -> str | None:
    """The recipe in a segment's key; None for any other key."""
    if isinstance(key, str) and key.startswith(PREFIX):
        recipe, dot, generation = key[len(PREFIX) :].rpartition(".g")
        if dot and generation.isdigit():
            return recipe
    return None
