"""Models beside the lab's own: loaded on the same workers by name, each with a core of its own over the shared rest."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvlab.engine.chat import ChatTokenizer
from kvlab.engine.models import describe
from kvlab.errors import ClusterError, NoRoom
from kvlab.runtime import calibration
from kvlab.runtime.core import Core
from kvlab.runtime.engines import MODEL_THREAD, ModelSpec, engine_for
from kvlab.runtime.memory import free_bytes
from kvlab.runtime.operations import Operations
from kvlab.runtime.planning import Planner


@dataclass(frozen=True, slots=True)
class Speaker:
    """One of a lab's models, as a run works with it: its core decides, computes and registers its states."""

    core: Core
    planner: Planner
    operations: Operations


def core_beside(core: Core, path: Path, *, n_copies: int) -> Core:
    """Load the model in the folder ``path`` on every worker of ``core``; returns a core of it on the same workers.

    A worker that starts later loads it when it is first asked to.

    Parameters
    ----------
    n_copies
        Processes of this machine that will hold its weights.

    Raises
    ------
    NoRoom
        If its weights do not fit into free memory.
    ClusterError
        If a worker cannot load it, or loads something else.
    """
    card = describe(path)
    spec = ModelSpec(card.name, str(path), "auto", core.config.dtype)
    need, free = card.weight_bytes(spec.dtype) * n_copies, free_bytes()
    if need > free:
        raise NoRoom(
            f"{card.name} needs {need / 2**30:.2f} GiB for {n_copies} copies of its weights; {free / 2**30:.2f} are free",
            hint="a smaller model, or a lab with fewer workers",
            need_bytes=need,
            free_bytes=free,
        )
    workers = [worker.address for worker in core.living_workers()]
    with core.progress.task(f"Loading {card.name} on {len(workers)} workers"):
        told = core.client.run(_load, spec, workers=workers, on_error="return")
    for address, said in told.items():
        if isinstance(said, Exception):
            raise ClusterError(
                f"the worker at {address} cannot load {card.name}: {said}", hint="its folder must be on every machine"
            ) from said
    first, *others = told.values()
    if any(other != first for other in others):
        raise ClusterError(
            f"workers loaded different weights of {card.name}", hint="put the same folder on every machine"
        )
    identity, config = first
    tokenizer = ChatTokenizer.load(path, card.name)
    found = replace(core, model=identity, config=config, tokenizer=tokenizer, beside=spec)
    found.cost = calibration.calibrated_beside(found)
    core.catalog.evictor.prices[identity] = found.cost.prefill
    return found


async def _load(spec: ModelSpec) -> Any:
    engine = await asyncio.wrap_future(MODEL_THREAD.submit(engine_for, spec))
    return engine.identity, engine.config
