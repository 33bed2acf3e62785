"""Dropping single copies of a segment. The one place that uses Dask's replica requests, which are not public."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def drop_replicas(client: Any, key: str, addresses: Sequence[str]) -> None:
    """Give up the copies of ``key`` on the workers at ``addresses``, but never the last one anywhere."""
    if addresses:
        client.run_on_scheduler(_drop, key=key, addresses=list(addresses))


def _drop(key: str, addresses: list[str], dask_scheduler: Any = None) -> None:
    task = dask_scheduler.tasks.get(key)
    if task is None:
        return
    holders = {state.address for state in task.who_has or ()}
    going = [address for address in addresses if address in holders]
    if len(going) >= len(holders):
        going = going[1:]
    for address in going:
        dask_scheduler.request_remove_replicas(address, [key], stimulus_id="kvlab-drop-replica")
