"""Every Dask setting that kvlab relies on, each with its reason. Nothing else in kvlab sets one.

They are applied in the process that makes the scheduler and in each worker process before Dask's servers are made;
:func:`read_back` tells what a running worker really has.
"""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, Any] = {
    # Placement is decided per edge by kvlab; stealing would move work away from its state.
    "distributed.scheduler.work-stealing": False,
    # The default policies drop replicas within seconds; a state's copies are owned by the catalog.
    "distributed.scheduler.active-memory-manager.start": False,
    # A task that cannot run anywhere fails by name instead of waiting for ever. A worker's restart takes 5 to 10 s,
    # and several times that on a busy machine.
    "distributed.scheduler.no-workers-timeout": "60s",
    # A stopped sender otherwise hangs its reader for minutes.
    "distributed.scheduler.worker-ttl": "30s",
    # One task may see several killed workers in a fault experiment before it is to blame.
    "distributed.scheduler.allowed-failures": 10,
    # A task per worker at a time: the model uses the threads. Queueing root tasks on the scheduler would hide
    # the queue that a decision sees.
    "distributed.scheduler.worker-saturation": float("inf"),
    # Mapped pages count in the RSS of every worker that touches them; Dask's limits would pause healthy workers.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.comm.timeouts.connect": "5s",
    # Dask refuses less than 11 s (ten keep-alive probes).
    "distributed.comm.timeouts.tcp": "12s",
    # Payloads are floats: compressing them costs time and saves nothing.
    "distributed.comm.compression": None,
    # A payload in several frames would arrive in as many pieces of memory, and be copied together.
    "distributed.comm.shard": "1 TiB",
    # Logs, keys and call stacks are not told to whoever opens the page: it says that the server lives, and no more.
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
    # The statistical profiler wakes a thread every 10 ms in a process whose cores belong to the model.
    "distributed.worker.profile.enabled": False,
    # So do fifty looks a second at whether the event loop stalls; a stall is told from 3 s on.
    "distributed.admin.tick.interval": "500ms",
}


def apply() -> None:
    """Set all of :data:`SETTINGS` in this process. Changes Dask's global configuration."""
    import dask
    from dask.utils import parse_bytes
    from distributed.comm.tcp import C_INT_MAX, TCP, TLS

    dask.config.set(SETTINGS)
    # Dask looks at this one when it is imported, and no more. OpenSSL takes no more than a C int at once.
    TCP.max_shard_size = parse_bytes(SETTINGS["distributed.comm.shard"])
    TLS.max_shard_size = min(C_INT_MAX, TCP.max_shard_size)


def read_back() -> dict[str, Any]:
    """The values that this process has for each of :data:`SETTINGS`."""
    import dask

    return {name: dask.config.get(name, None) for name in SETTINGS}
