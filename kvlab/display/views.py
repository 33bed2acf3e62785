"""Views that other packages bring: found by the entry-point group ``kvlab.views``, so that kvlab needs none of them.

An entry is ``name = "module:function"``; the function is called with a run, saved or live, and with what its caller adds.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from kvlab.errors import InvalidInput, MissingExtra

GROUP = "kvlab.views"
EXTRA = "kvlab[lab]"
HINT = f"pip install '{EXTRA}'"


def view(name: str, *arguments: Any, **options: Any) -> Any:
    """Whatever the view ``name`` makes of its arguments.

    Raises
    ------
    MissingExtra
        If no package brings that view, or one that it needs is not installed; the hint names the extra.
    InvalidInput
        If several packages bring a view of that name.
    """
    found = _named(name)
    try:
        return found.load()(*arguments, **options)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvlab":
            raise
        raise MissingExtra(f"{name} needs {error.name}, which is not installed", hint=HINT, view=name) from error


def _named(name: str) -> EntryPoint:
    found = sorted(entry_points(group=GROUP, name=name), key=lambda entry: entry.value)
    if not found:
        raise MissingExtra(f"there is no view {name!r} on this Python", hint=HINT, view=name)
    if len({entry.value for entry in found}) > 1:
        told = ", ".join(entry.value for entry in found)
        raise InvalidInput(f"several packages bring a view {name!r}: {told}", hint="uninstall all but one")
    return found[0]
