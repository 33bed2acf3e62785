"""What came of work on workers: results, fetched with a time limit, and errors, in kvlab's words."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from kvlab.errors import Cancelled, ClusterError, KVLabError, NoRoom

FAILED = frozenset({"error", "cancelled", "lost"})
"""What Dask calls a future that will have no result."""


def fetched(client: Any, futures: Sequence[Any], seconds: float) -> list[Any]:
    """Results of finished futures.

    Raises
    ------
    TimeoutError
        If who has them does not send them within ``seconds``; they can be asked for again.
    """

    async def gather() -> list[Any]:
        return list(await client.gather(list(futures), asynchronous=True))

    results: list[Any] = client.sync(gather, callback_timeout=seconds)
    return results


def error_of(future: Any) -> KVLabError:
    """Why a Dask future has no result."""
    if future.status in FAILED - {"error"}:
        if future.client.status != "running":
            return ClusterError("the scheduler is gone", hint="open a lab again, or start the scheduler again")
        return Cancelled("the cluster dropped this work", hint="run it again; the scheduler may have been restarted")
    error = future.exception()
    if isinstance(error, KVLabError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return NoRoom(f"a worker has no descriptor left: {error}", hint="raise its limit (ulimit -n), or evict states")
    name = type(error).__name__
    if name == "KilledWorker":
        return ClusterError(
            f"every worker that tried this work died: {error}",
            hint="look at the workers' logs in the run folder; memory is the usual reason",
        )
    if name in {"NoWorkerError", "NoValidWorkerError"}:
        return ClusterError("no worker was left for this work", hint="start workers, or open a new lab")
    return KVLabError(
        f"work on a worker failed: {name}: {error}",
        hint="the workers' logs say where: in a run's folder, or in kvlab-lab-* in the temporary folder",
    )


def as_error(error: Exception, what: str) -> KVLabError:
    """``error`` as one of kvlab's, saying ``what`` went wrong; kvlab's own are as they are."""
    if isinstance(error, KVLabError):
        return error
    if type(error).__name__ in {"ClosedClientError", "CommClosedError"}:
        return ClusterError(f"{what}: the scheduler is gone", hint="open a lab again, or start the scheduler again")
    return KVLabError(f"{what}: {type(error).__name__}: {error}", hint="the log of logger kvlab says where")
