"""Topologies to run at once: each module makes one workflow, from any document."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow

NAMES: tuple[str, ...] = (
    "review",
    "chain",
    "fan-out",
    "debate",
    "tree",
    "map-reduce",
    "reflection",
    "rag",
    "plan-execute",
    "second-opinion",
)
"""Each names a module here, with ``_`` for ``-``, and the function in it that makes the workflow."""


def build(name: str, context: str | None = None, **parameters: Any) -> Workflow:
    """The workflow called ``name`` over the document ``context``; None takes the sample text.

    Parameters
    ----------
    parameters
        What :func:`parameters_of` names, such as ``agents=6``.

    Raises
    ------
    InvalidInput
        For an unknown name or parameter, saying which there are, and for a value that a workload refuses.
    """
    known = parameters_of(name)
    unknown = [given for given in parameters if given not in known]
    if unknown:
        raise InvalidInput(f"workload {name!r} has no parameter {unknown[0]!r}", hint=f"one of: {', '.join(known)}")
    return _maker(name)(context, **parameters)


def parameters_of(name: str) -> Mapping[str, int | str]:
    """The parameters of a workload and their defaults.

    Raises
    ------
    InvalidInput
        For an unknown name; says which there are.
    """
    found = inspect.signature(_maker(name)).parameters.values()
    return {one.name: one.default for one in found if one.kind is inspect.Parameter.KEYWORD_ONLY}


def told(name: str) -> str:
    """What a workload is, in one sentence."""
    module = import_module(_maker(name).__module__)
    return (module.__doc__ or "").split("\n", 1)[0]


def _maker(name: str) -> Callable[..., Workflow]:
    if name not in NAMES:
        raise InvalidInput(f"there is no workload {name!r}", hint=f"one of: {', '.join(NAMES)}", name=name)
    plain = name.replace("-", "_")
    maker: Callable[..., Workflow] = getattr(import_module(f"kvlab.workloads.{plain}"), plain)
    return maker
