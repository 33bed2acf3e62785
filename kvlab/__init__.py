"""A laboratory for the KV cache of language models as a first-class distributed object.

    import kvlab

    lab = kvlab.Lab()
    wf = kvlab.Workflow("review")
    paper = wf.context("paper", kvlab.sample_text())
    plan = wf.agent("planner", [paper, "Name three weaknesses."], max_new_tokens=48)
    run = lab.run(wf)

Importing it starts nothing and loads neither torch nor Dask: each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from kvlab.errors import (
    Cancelled,
    ChecksumMismatch,
    ClusterError,
    ContextTooLong,
    GraphError,
    IllegalTransition,
    InvalidInput,
    KVLabError,
    MergeRefused,
    MissingExtra,
    ModelNotFound,
    ModelRefused,
    NoRoom,
    NoWorker,
    RunUnreadable,
    StateGone,
    StateMismatch,
    TransferFailed,
)

if TYPE_CHECKING:
    from kvlab.runtime.handles import Generation, KVState
    from kvlab.runtime.lab import Lab
    from kvlab.runtime.run import Run
    from kvlab.runtime.verbs import merge
    from kvlab.sample import sample_text
    from kvlab.store.runs import open_run
    from kvlab.workflow.workflow import Workflow

_HOME = {
    "Generation": "kvlab.runtime.handles",
    "KVState": "kvlab.runtime.handles",
    "Lab": "kvlab.runtime.lab",
    "Run": "kvlab.runtime.run",
    "Workflow": "kvlab.workflow.workflow",
    "merge": "kvlab.runtime.verbs",
    "open_run": "kvlab.store.runs",
    "sample_text": "kvlab.sample",
}

__version__ = _version("kvlab")

__all__ = [
    "Cancelled",
    "ChecksumMismatch",
    "ClusterError",
    "ContextTooLong",
    "Generation",
    "GraphError",
    "IllegalTransition",
    "InvalidInput",
    "KVLabError",
    "KVState",
    "Lab",
    "MergeRefused",
    "MissingExtra",
    "ModelNotFound",
    "ModelRefused",
    "NoRoom",
    "NoWorker",
    "Run",
    "RunUnreadable",
    "StateGone",
    "StateMismatch",
    "TransferFailed",
    "Workflow",
    "__version__",
    "merge",
    "open_run",
    "sample_text",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kvlab' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
