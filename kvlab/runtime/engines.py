"""The engines of this process: each model is loaded once, by name, never shipped in a task, and runs on one thread.

All model work of a process runs on :data:`MODEL_THREAD`. OpenMP keeps a team of threads for every thread that ever
computed, and when teams have more threads than there are cores, libgomp stops spinning between regions: a decode step of
SmolLM2 on two cores takes 40 ms with one team and 80 with two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed.threadpoolexecutor import ThreadPoolExecutor

if TYPE_CHECKING:
    from kvlab.engine.torch_engine import TorchEngine


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model to load and how. ``path`` is the model's folder on the machine of the worker."""

    name: str
    path: str
    device: str = "auto"
    dtype: str = "auto"


MODEL_THREAD = ThreadPoolExecutor(1, thread_name_prefix="kvlab-model")
"""Dask's kind of pool: its thread is a daemon, so a worker that is told to end does not wait for a long answer."""

_engines: dict[ModelSpec, TorchEngine] = {}
_lock = threading.Lock()


def on_model_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """What ``work(*arguments)`` returns, computed on the model thread."""
    return MODEL_THREAD.submit(work, *arguments).result()


def engine_for(spec: ModelSpec) -> TorchEngine:
    """The loaded engine of ``spec``, loading it if this process has not yet."""
    with _lock:
        if spec not in _engines:
            from kvlab.engine.loading import load_engine

            _engines[spec] = load_engine(spec.path, name=spec.name, device=spec.device, dtype=spec.dtype)
        return _engines[spec]
