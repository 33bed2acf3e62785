"""A misspelt keyword is refused with the nearest valid one, never ignored."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from kvlab.errors import InvalidInput


def refuse_unknown_keywords(where: str, unknown: Iterable[str], valid: Iterable[str]) -> None:
    """Return if ``unknown`` is empty.

    Raises
    ------
    InvalidInput
        Naming ``where``, the first unknown keyword and the valid one that is nearest to it.
    """
    names, allowed = list(unknown), list(valid)
    if not names:
        return
    near = difflib.get_close_matches(names[0], allowed, n=1, cutoff=0.5)
    raise InvalidInput(
        f"{where} has no keyword {names[0]}=",
        hint=f"did you mean {near[0]}=?" if near else "its keywords are " + ", ".join(f"{name}=" for name in allowed),
        keyword=names[0],
        nearest=near[0] if near else None,
    )
