"""A kvlab worker as a process of its own: ``kvlab worker tcp://scheduler:port``, and what the local lab starts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvlab.engine.models import describe
from kvlab.errors import ClusterError, InvalidInput, KVLabError
from kvlab.runtime import dask_settings
from kvlab.runtime.certificates import LOOPBACK, Certificates, configured
from kvlab.runtime.engines import ModelSpec
from kvlab.runtime.orders import MODEL_WORK
from kvlab.transport.link_pace import LinkPace

if TYPE_CHECKING:
    from distributed.security import Security

logger = logging.getLogger(__name__)

THREADS = 2
"""One for the model, one for what hands its results on."""

ENVIRONMENT = {"GOMP_SPINCOUNT": "3000"}
"""For a worker's process, where nobody has set it otherwise; read when torch is loaded.

Torch's threads wait for each other a thousand times a token. GNU's OpenMP lets them spin for milliseconds, which is
fastest while the machine is kvlab's alone; but where another process keeps one core busy, each wait costs a scheduler's
time slice, and a token takes seconds instead of 40 ms. Spinning for 3,000 rounds costs an idle machine nothing that shows
and a busy one no more than its share.
"""

START_SECONDS = 120.0
"""A worker imports torch and loads the model before it registers; on a busy laptop that takes a while."""


def main(
    address: str,
    model: ModelSpec,
    *,
    name: str | None = None,
    same_host: str = "map",
    pace: LinkPace | None = None,
    local_directory: str | None = None,
    watch_stdin: bool = False,
    certificates: Certificates | None = None,
) -> int:
    """Serve the scheduler at ``address`` until it is gone; returns the exit status.

    With ``watch_stdin`` the process also ends when its standard input closes: whoever started it holds the other end,
    so it ends with its starter however that came to its end. With ``pace`` the links to other workers are paced.
    A scheduler at ``tls://`` is shown ``certificates``, or what Dask's configuration names.

    Raises
    ------
    InvalidInput
        If ``address`` is none, or wants certificates that are not given.
    ClusterError
        If no scheduler answers there within :data:`START_SECONDS`.
    """
    _require_address(address)
    security = _security(address, certificates)
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    dask_settings.apply()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    if watch_stdin:
        threading.Thread(target=_end_with_stdin, name="kvlab-stdin", daemon=True).start()
    # A lab asks for a model by the name on its card, whatever it was called on this command line.
    model = replace(model, name=describe(model.path).name)
    return asyncio.run(_serve(address, model, name, same_host, pace, local_directory, security))


async def _serve(
    address: str,
    model: ModelSpec,
    name: str | None,
    same_host: str,
    pace: LinkPace | None,
    directory: str | None,
    security: Security | None,
) -> int:
    from kvlab.runtime.fetching import SegmentWorker
    from kvlab.runtime.worker_plugin import KVWorker
    from kvlab.transport import pacing

    if pace is not None:
        # A worker takes listener and connector for its addresses from Dask's registry, and has no argument for others.
        # This process is the worker's alone, so nothing else is paced by it.
        pacing.install(pace)
    # A scheduler on loopback has its workers there too; any other needs an address that it can reach.
    local = urlsplit(address).hostname in LOOPBACK
    worker = SegmentWorker(
        address,
        host="127.0.0.1" if local else None,
        protocol=urlsplit(address).scheme,
        security=security,
        dashboard_address="127.0.0.1:0",
        nthreads=THREADS,
        resources=MODEL_WORK,
        name=name,
        memory_limit=0,
        dashboard=False,
        local_directory=directory,
        plugins=(KVWorker(model, same_host=same_host),),
        death_timeout=START_SECONDS,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: asyncio.ensure_future(worker.close(reason="signal")))
    await started(worker)
    logger.info("worker %s serves %s with %s", worker.name, address, model.name)
    await worker.finished()
    return 0


async def started(worker: Any) -> None:
    """Return when the Dask worker ``worker`` has registered.

    Raises
    ------
    KVLabError
        Where one is the reason that it cannot, such as a refused model; Dask wraps it in errors of its own.
    ClusterError
        Where no scheduler answers.
    """
    try:
        await worker
    except Exception as error:
        causes = list(_causes(error))
        for cause in causes:
            if isinstance(cause, KVLabError):
                raise cause from error
        if any(isinstance(cause, OSError) for cause in causes):  # a TimeoutError is one
            raise ClusterError(
                f"no scheduler answers at {worker.scheduler.address}",
                hint="start one with `dask scheduler`, and give the address that it prints",
            ) from error
        raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _require_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        whole = bool(parts.scheme and parts.hostname and parts.port)
    except ValueError:
        whole = False
    if not whole:
        raise InvalidInput(f"{address!r} is not the address of a scheduler", hint="such as tcp://127.0.0.1:8786")


def _security(address: str, certificates: Certificates | None) -> Security | None:
    if urlsplit(address).scheme != "tls":
        if certificates is not None:
            raise InvalidInput(f"certificates for {address}, which is not encrypted", hint="the address is tls://…")
        return None
    if certificates is not None:
        return certificates.security()
    return configured(address, "worker", f"kvlab worker {address} --tls-ca-file FILE --tls-cert FILE --tls-key FILE")


def _end_with_stdin() -> None:
    while os.read(0, 1024):
        continue
    # The starter is gone: no state of this process can be wanted by anyone, and the kernel frees its memory.
    os._exit(0)


def command(
    address: str,
    model: ModelSpec,
    name: str,
    same_host: str,
    pace: LinkPace | None,
    local_directory: Path,
    certificates: Certificates | None = None,
) -> list[str]:
    """The command line of a worker that ends with its starter."""
    # repr says a float to its last bit, and the lab compares what its workers then say.
    paced = (
        ["--link-rate", f"{pace.bits_per_second!r} bit/s", "--link-latency", f"{pace.latency_seconds!r} s"]
        if pace is not None
        else []
    )
    return [
        sys.executable, "-m", "kvlab", "worker", address,
        "--name", name, "--model", model.name, "--model-path", model.path, "--device", model.device,
        "--dtype", model.dtype, "--same-host", same_host, "--local-directory", str(local_directory), "--watch-stdin",
        *paced, *(certificates.flags if certificates is not None else []),
    ]  # fmt: skip
