"""What a worker is asked to do: the arguments of the tasks. Small, immutable, and pickled by Dask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvlab.engine.protocol import Branch
from kvlab.runtime.engines import ModelSpec
from kvlab.state.identity import ModelIdentity

MODEL_WORK: dict[str, float] = {"model": 1}
"""The Dask resource that model work takes: one piece at a time on a worker, with a thread left for what hands on results."""

Work = Literal["materialize", "resume", "siblings", "recompute", "text", "truncate", "logits"]


@dataclass(frozen=True, slots=True)
class Order:
    """One piece of model work.

    Attributes
    ----------
    action, run
        Ids under which events are reported.
    model
        Whose states these are: a worker that has loaded other weights refuses.
    agents, recipes, branches
        One entry a branch: who speaks, what segment comes of it, what is fed and how it goes on.
    threads
        How many threads this work may use.
    chunk
        Prefill in pieces of so many tokens; progress and cancellation happen between them.
    beside
        Where to load the model from, if it is not the one that the worker was started with.
    """

    action: str
    run: str
    work: Work
    model: ModelIdentity
    agents: tuple[str, ...]
    recipes: tuple[str, ...]
    branches: tuple[Branch, ...]
    threads: int
    chunk: int = 1024
    beside: ModelSpec | None = None
