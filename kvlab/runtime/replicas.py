"""Single copies of a segment, and who decides on them. The one place that reaches into Dask's scheduler for it."""

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


async def take_over_placement(dask_scheduler: Any) -> list[str]:
    """On a scheduler that kvlab did not start: stop what moves or drops tasks' results; says what was on."""
    stopped = []
    stealing = dask_scheduler.extensions.get("stealing")
    if stealing is not None and "stealing" in dask_scheduler.periodic_callbacks:
        await stealing.stop()
        stopped.append("work stealing")
    memory_manager = dask_scheduler.extensions.get("amm")
    if memory_manager is not None and memory_manager.running:
        memory_manager.stop()
        stopped.append("the active memory manager")
    return stopped
