"""Dask keys of segments: ``kv-<recipe>.g<generation>.<lab>``.

Submitting a key that Dask knows returns the old result, its old error too. So every new attempt to make a segment by
another road takes the next generation, and the catalog knows which generations live. The lab's own mark keeps two labs on
one scheduler apart.
"""

from __future__ import annotations

import re

PREFIX = "kv-"
AUDIT = "audit-"
"""What is only done to be measured is called so, as a run and as a segment: no run's record hears of it."""
BACK = "back-"
"""Before the key of a segment: its back, which is all of it that travels for a hybrid."""
_KEY = re.compile(r"kv-(?P<recipe>[^.]+)\.g\d+\.[0-9a-z]+")

TAILS = "@tails"
"""What siblings work in is set aside under the key of the first and this: it lies on the heap of their worker."""


def segment_key(recipe: str, generation: int, lab: str) -> str:
    """The key of one generation of a segment in the lab marked ``lab``."""
    return f"{PREFIX}{recipe}.g{generation}.{lab}"


def recipe_in(key: object) -> str | None:
    """The recipe in a segment's key; None for any other key."""
    found = _KEY.fullmatch(key) if isinstance(key, str) else None
    return found["recipe"] if found is not None else None
