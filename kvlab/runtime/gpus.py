"""Which GPU a local worker gets: one each, in turn, as dask-cuda assigns them. Elsewhere nothing is set."""

from __future__ import annotations

import importlib.util
import logging
from functools import cache
from pathlib import Path

logger = logging.getLogger(__name__)

CHOOSES = ("auto", "cuda")
"""Devices that leave the choice to kvlab; ``"cuda:1"`` is a person's own."""

DRIVER = Path("/proc/driver/nvidia/gpus")
"""NVIDIA's driver for Linux has a folder here for each device: a look at it loads no library."""


def environment(index: int, device: str) -> dict[str, str]:
    """What the process of local worker ``index`` needs in its environment to see its own GPU first. Empty without GPUs."""
    if device not in CHOOSES or not _may_be_shared_out():
        return {}
    from dask_cuda.utils import cuda_visible_devices, get_n_gpus

    return {"CUDA_VISIBLE_DEVICES": str(cuda_visible_devices(index % get_n_gpus()))}


@cache
def _may_be_shared_out() -> bool:
    n_gpus = len(list(DRIVER.iterdir())) if DRIVER.is_dir() else 0
    known = importlib.util.find_spec("dask_cuda") is not None
    if n_gpus > 1 and not known:
        logger.warning(
            "%d GPUs are here and all workers share the first; pip install 'kvlab[gpu]' gives each one of its own",
            n_gpus,
        )
    return n_gpus > 0 and known
