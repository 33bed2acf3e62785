"""What everything in a lab shares: the client, the workers, the catalog, the hub, the cost model, the tokenizer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.errors import ClusterError, NoWorker
from kvlab.progress import Progress
from kvlab.runtime.load import Load
from kvlab.state.identity import root_digest

if TYPE_CHECKING:
    from kvlab.engine.chat import ChatTokenizer
    from kvlab.runtime.catalog import Catalog
    from kvlab.runtime.engines import ModelSpec
    from kvlab.runtime.hub import Hub
    from kvlab.state.identity import KVConfig, ModelIdentity
    from kvlab.transport.link_pace import LinkPace


@dataclass(slots=True)
class WorkerSeen:
    """A worker as the lab knows it. ``address`` is None while it is down."""

    name: str
    address: str | None
    host: str
    pid: int
    cores: int
    device: str
    memory_bytes: int = 0


NO_WORKERS_SECONDS = 75.0
"""How long work waits for a first worker. kvlab's own scheduler gives up after 60 s, somebody's perhaps never."""

WAKING_SECONDS = 0.05
"""How often who waits for a first worker looks for it."""

UNMEASURED = CostModel(PrefillCurve(0.0, 0.0, 0.0, 1), DecodeCurve(0.0), Link(0.0, 1.0), 0.0, 0.0)
"""Before calibration; nothing is decided with it."""


@dataclass(slots=True)
class Core:
    """One a lab; made by the lab when it starts, closed by it."""

    client: Any
    hub: Hub
    catalog: Catalog
    model: ModelIdentity
    config: KVConfig
    tokenizer: ChatTokenizer
    namespace: str
    same_host: str
    chunk: int
    workers: dict[str, WorkerSeen]
    progress: Progress
    cost: CostModel = UNMEASURED
    pace: LinkPace | None = None
    beside: ModelSpec | None = None
    """Set where this is a model beside the one that the workers were started with."""
    load: Load = field(default_factory=Load)
    closed: bool = False
    alone_since: float | None = None

    @property
    def wire(self) -> str:
        """What carries messages: ``"tls"``, ``"tcp"``, ``"ucxx"``, or ``"inproc"`` inside one process."""
        return urlsplit(self.client.scheduler.address).scheme

    def root(self, namespace: str) -> str:
        """Root digest of paths in ``namespace``."""
        return root_digest(self.model, self.config, namespace)

    @property
    def known_workers(self) -> tuple[WorkerSeen, ...]:
        """All that were ever let in, as of now: others may join meanwhile."""
        return tuple(self.workers.values())

    @property
    def n_up(self) -> int:
        """How many workers are up."""
        return sum(worker.address is not None for worker in self.known_workers)

    def living_workers(self) -> list[WorkerSeen]:
        """Workers that are up, by name.

        Raises
        ------
        NoWorker
            If there is none.
        """
        found = sorted((one for one in self.known_workers if one.address), key=lambda worker: worker.name)
        if not found:
            raise NoWorker(
                "no worker is up",
                hint="wait for a restart, or start one with `kvlab worker ADDRESS`",
                workers=list(self.workers),
            )
        return found

    def require_scheduler(self) -> None:
        """Return if the scheduler is there, or is just being looked for again.

        Raises
        ------
        ClusterError
            If it is gone for good: nothing more can be done in this lab.
        """
        if self.client.status in ("closing", "closed"):
            raise ClusterError(
                "the scheduler of this lab is gone, and every state with it",
                hint="open a lab again; if the scheduler was somebody's, it must be started again first",
            )

    def require_hope(self) -> None:
        """Return if waiting for work makes sense; asked now and then by who waits.

        Raises
        ------
        ClusterError
            If the scheduler is gone, or no worker was up for :data:`NO_WORKERS_SECONDS`.
        """
        self.require_scheduler()
        if self.n_up:
            self.alone_since = None
        elif self.alone_since is None:
            self.alone_since = time.monotonic()
        elif time.monotonic() - self.alone_since > NO_WORKERS_SECONDS:
            raise ClusterError(
                f"no worker was up for {NO_WORKERS_SECONDS:.0f} s: {', '.join(self.workers)} are gone",
                hint="start one with `kvlab worker ADDRESS`; states come back when they are used",
                workers=list(self.workers),
            )

    def wait_for_worker(self) -> None:
        """Return when a worker is up: own ones are started again within seconds.

        Raises
        ------
        ClusterError
            As :meth:`require_hope`.
        """
        self.require_hope()
        while not self.n_up:
            time.sleep(WAKING_SECONDS)
            self.require_hope()

    def address_of(self, worker: str) -> list[str]:
        """The address of a worker, as a placement hint; empty while it is down."""
        seen = self.workers.get(worker)
        return [seen.address] if seen is not None and seen.address else []

    def threads_for(self, worker: str) -> int:
        """How many threads the next piece of work on ``worker`` gets."""
        seen = self.workers[worker]
        neighbours = frozenset(one.name for one in self.known_workers if one.host == seen.host and one.address)
        return self.load.threads_for(worker, seen.cores, neighbours)
