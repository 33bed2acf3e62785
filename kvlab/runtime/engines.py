"""The engines of this process: each model is loaded once, by name, never shipped in a task."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlab.engine.torch_engine import TorchEngine


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model to load and how. ``path`` is the model's folder on the machine of the worker."""

    name: str
    path: str
    device: str = "auto"
    dtype: str = "auto"


_engines: dict[ModelSpec, TorchEngine] = {}
_lock = threading.Lock()


def engine_for(spec: ModelSpec) -> TorchEngine:
    """The loaded engine of ``spec``, loading it if this process has not yet."""
    with _lock:
        if spec not in _engines:
            from kvlab.engine.loading import load_engine

            _engines[spec] = load_engine(spec.path, name=spec.name, device=spec.device, dtype=spec.dtype)
        return _engines[spec]
