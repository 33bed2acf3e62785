"""Topologies to run at once: each module makes one workflow, from any document."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow

NAMES: tuple[str, ...] = ("review",)
"""Each names a module here and the function in it that makes the workflow."""


def build(name: str, context: str | None = None) -> Workflow:
    """The workflow called ``name`` over the document ``context``; None takes the sample text.

    Raises
    ------
    InvalidInput
        For an unknown name; says which there are.
    """
    if name not in NAMES:
        raise InvalidInput(f"there is no workload {name!r}", hint=f"one of: {', '.join(NAMES)}", name=name)
    make: Callable[[str | None], Workflow] = getattr(import_module(f"kvlab.workloads.{name}"), name)
    return make(context)
