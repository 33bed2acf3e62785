"""Where the workers come from: kvlab's own local ones, or somebody's scheduler.

Own workers are separate processes started with ``kvlab worker``, the same command a person uses on another machine. They
need no ``__main__`` guard, and each ends by itself when this process is gone (its standard input closes).
A worker that dies is started again under its name.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvlab.errors import ClusterError
from kvlab.runtime import dask_settings, gpus, worker_process
from kvlab.runtime.certificates import Certificates
from kvlab.runtime.engines import ModelSpec
from kvlab.runtime.orders import MODEL_WORK
from kvlab.runtime.worker_process import THREADS
from kvlab.transport.link_pace import LinkPace

if TYPE_CHECKING:
    from distributed.security import Security

logger = logging.getLogger(__name__)

RESTARTS = 20
"""How often one worker is started again."""
RESTART_SECONDS = 1.0
"""Between two tries to start a worker for which the system has no room."""
CONNECT_SECONDS = 10.0
"""How long a scheduler that is somewhere else may take to answer."""
LOOPBACK: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
"""Where a local scheduler serves its health page; without Dask's dashboard, which would import Bokeh."""
_POLL_SECONDS = 0.1


class Cluster(Protocol):
    """What the lab needs of a cluster."""

    client: Any

    def close(self) -> None:
        """Give back what was started; a foreign scheduler keeps running."""


class LocalWorkers:
    """A scheduler in this process and workers in processes of their own, on 127.0.0.1.

    With ``certificates`` they speak TLS and nothing else; they must stay where they are while this lives, because a
    worker that is started again reads them.
    """

    def __init__(
        self,
        model: ModelSpec,
        n_workers: int,
        same_host: str,
        folder: Path,
        pace: LinkPace | None = None,
        protocol: str = "tcp",
        certificates: Certificates | None = None,
    ) -> None:
        dask_settings.apply()
        from distributed import Client, LocalCluster

        self._model, self._same_host, self._pace, self._folder = model, same_host, pace, folder
        self._certificates = certificates
        self._closing = threading.Event()
        self._restarts: Counter[str] = Counter()
        self._ended: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._scheduler = LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            protocol="tls" if certificates else protocol,
            security=certificates.security() if certificates else None,
            silence_logs=logging.ERROR,
            **LOOPBACK,
        )
        self._address: str = self._scheduler.scheduler_address
        self.client = Client(self._scheduler, set_as_default=False)
        self._supervisor = threading.Thread(target=self._supervise, name="kvlab-supervisor", daemon=True)
        self._supervisor.start()
        try:
            for index in range(n_workers):
                self._start(f"worker-{index}")
        except BaseException:
            self.close()
            raise

    def _start(self, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        line = worker_process.command(
            self._address, self._model, name, self._same_host, self._pace, self._folder / "dask", self._certificates
        )
        inherited = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        own = gpus.environment(int(name.rpartition("-")[2]), self._model.device)
        environment = {**worker_process.ENVIRONMENT, **inherited, **own}
        with log.open("ab") as sink:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own command line
                line, stdin=subprocess.PIPE, stdout=sink, stderr=sink, env=environment, start_new_session=True
            )

    def _supervise(self) -> None:
        from distributed.core import Status

        while not self._closing.wait(_POLL_SECONDS):
            for name, process in list(self._processes.items()):
                if process.poll() is None or self._closing.is_set():
                    continue
                self._ended[name] = process.returncode
                _close_stdin(process)
                self._restarts[name] += 1
                scheduler = self._scheduler.scheduler
                alone = scheduler is None or scheduler.status in (Status.closing, Status.closed)
                if alone or self._restarts[name] > RESTARTS:
                    why = "the scheduler is gone" if alone else f"it ended {self._restarts[name]} times"
                    logger.error("worker %s is not started again: %s", name, why)
                    self._processes = {other: one for other, one in self._processes.items() if other != name}
                    continue
                logger.warning("worker %s ended with status %s; starting it again", name, process.returncode)
                try:
                    self._start(name)
                except OSError:  # no descriptor or no memory is left: some may be soon
                    logger.exception("worker %s could not be started", name)
                    self._closing.wait(RESTART_SECONDS)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the workers by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def ended(self) -> dict[str, int]:
        """Workers whose process has ended, even if it was started again since, and its last exit status."""
        return dict(self._ended)

    def log_tail(self, name: str, n_lines: int = 5) -> str:
        """What a worker said last: the error it named, else the last lines of its log."""
        log = self._folder / f"{name}.log"
        if not log.exists():
            return ""
        lines = log.read_text(errors="replace").splitlines()
        named = max((index for index, line in enumerate(lines) if line.startswith("kvlab: ")), default=-n_lines)
        return "\n".join(lines[named:]).removeprefix("kvlab: ")

    def close(self) -> None:
        """Stop the workers and the scheduler that were started here; nothing is left behind."""
        self._closing.set()
        self._supervisor.join()
        try:
            self.client.close(timeout=5)
        finally:
            for process in self._processes.values():
                _close_stdin(process)
            deadline = time.monotonic() + 5
            for process in self._processes.values():
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._scheduler.close(timeout=5)


class LocalThreads:
    """Scheduler and workers inside this process: states are shared by reference."""

    def __init__(self, model: ModelSpec, n_workers: int, same_host: str, folder: Path) -> None:
        dask_settings.apply()
        from distributed import Client, LocalCluster

        from kvlab.runtime.worker_plugin import KVWorker

        self._workers: list[Any] = []
        self._cluster = LocalCluster(n_workers=0, processes=False, silence_logs=logging.ERROR, **LOOPBACK)
        self.client = Client(self._cluster, set_as_default=False)
        try:
            for index in range(n_workers):
                self._cluster.sync(self._add, f"worker-{index}", KVWorker(model, same_host=same_host), folder)
        except BaseException:
            self.close()
            raise

    async def _add(self, name: str, plugin: Any, folder: Path) -> None:
        from distributed import Worker

        worker = Worker(
            str(self._cluster.scheduler_address),
            nthreads=THREADS,
            resources=MODEL_WORK,
            name=name,
            memory_limit=0,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            plugins=(plugin,),
            local_directory=str(folder),
            protocol="inproc",
        )
        self._workers.append(worker)
        await worker_process.started(worker)

    def close(self) -> None:
        """Stop workers and scheduler."""

        async def stop() -> None:
            for worker in self._workers:
                await worker.close(reason="lab closed")

        self._cluster.sync(stop)
        self.client.close(timeout=5)
        self._cluster.close(timeout=5)


class Foreign:
    """Somebody's scheduler, with workers started by ``kvlab worker``. Left running on close."""

    def __init__(self, address: str, security: Security | None = None) -> None:
        dask_settings.apply()
        from distributed import Client

        # A Dask client that cannot connect must never be made: what is left of it is closed by the garbage collector, in
        # whichever thread that runs, which then waits for a lock that a starting event loop may hold.
        try:
            _ask_who_is_there(address, security)
            self.client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
        except Exception as error:
            said = "it does not speak as one" if isinstance(error, TimeoutError) else str(error) or repr(error)
            raise ClusterError(
                f"the scheduler at {address} does not answer: {said}",
                hint=f"start one with `dask scheduler`, then workers with `kvlab worker {address}`; "
                "or leave the address out for local workers",
                address=address,
            ) from error

    def close(self) -> None:
        """Disconnect."""
        self.client.close(timeout=5)


def _ask_who_is_there(address: str, security: Security | None) -> None:
    """Return when a Dask scheduler answers at ``address``; raise what its connection raises, or TimeoutError."""
    from distributed.core import rpc
    from distributed.security import Security

    async def ask() -> None:
        shown = (security or Security()).get_connection_args("client")
        async with rpc(address, timeout=CONNECT_SECONDS, connection_args=shown) as scheduler:
            await scheduler.identity(n_workers=0)

    # In a thread of its own: where something else listens, Dask may wait for ever for the rest of a message, or ask for as
    # much memory as the first bytes of an answer happen to say.
    answer: Future[None] = Future()

    def wait() -> None:
        try:
            asyncio.run(asyncio.wait_for(ask(), 1.5 * CONNECT_SECONDS))
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits is told
            answer.set_exception(error)
        else:
            answer.set_result(None)

    threading.Thread(target=wait, name="kvlab-ask", daemon=True).start()
    answer.result(timeout=2 * CONNECT_SECONDS)


def wait_for_workers(client: Any, n_workers: int, failed: Callable[[], str], seconds: float) -> None:
    """Return when ``n_workers`` workers are registered, of kvlab or not.

    Raises
    ------
    ClusterError
        When they do not come in time, or ``failed`` says (with a non-empty text) that one cannot start.
    """
    deadline = time.monotonic() + seconds
    while True:
        present = len(client.scheduler_info(n_workers=-1)["workers"])
        if present >= n_workers:
            return
        why = failed()
        if why:
            raise ClusterError(
                f"a worker could not start: {why}", hint="`kvlab worker` in a terminal shows all that it says"
            )
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{present} of {n_workers} workers came within {seconds:.0f} s",
                hint="start workers with `kvlab worker ADDRESS`, or look at their logs",
            )
        time.sleep(_POLL_SECONDS)


def _close_stdin(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            logger.debug("worker %s had closed its input", process.pid)
