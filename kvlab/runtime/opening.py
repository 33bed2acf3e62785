"""Opening a lab: from settings to workers with a loaded model, and the core that everything shares."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlab.engine.chat import ChatTokenizer
from kvlab.errors import ClusterError
from kvlab.policy.eviction import EvictionPolicy
from kvlab.progress import Progress
from kvlab.runtime import calibration, certificates
from kvlab.runtime.admitting import agreed, require_same, told_by
from kvlab.runtime.catalog import Catalog, PhaseChanged
from kvlab.runtime.cluster import Cluster, Foreign, LocalThreads, LocalWorkers, wait_for_workers
from kvlab.runtime.core import Core
from kvlab.runtime.engines import ModelSpec
from kvlab.runtime.entries import StateEntry
from kvlab.runtime.hub import Hub
from kvlab.runtime.replicas import take_over_placement
from kvlab.runtime.reporting import TOPIC
from kvlab.runtime.scheduler_plugin import WorkersSeen
from kvlab.runtime.spilling import DiskTier
from kvlab.runtime.watching import watch
from kvlab.runtime.worker_process import START_SECONDS
from kvlab.state.lifecycle import Phase
from kvlab.store.events import Kind
from kvlab.transport.link_pace import LinkPace

if TYPE_CHECKING:
    from distributed.security import Security

logger = logging.getLogger(__name__)

FOREIGN_SECONDS = 10.0
PLAIN = "Not encrypted, and open to every process of this machine that can reach 127.0.0.1"


@dataclass(frozen=True, slots=True)
class Opening:
    """What a lab is opened with."""

    spec: ModelSpec
    scratch: Path
    same_host: str
    namespace: str
    chunk: int
    budget_bytes: int
    device_budget_bytes: int | None
    spill_bytes: int
    eviction: EvictionPolicy
    progress: Progress
    calibrate: bool = False
    pace: LinkPace | None = None
    protocol: str = "tcp"
    security: bool | Security = True

    def cluster(self, address: str | None, n_workers: int, *, processes: bool) -> Cluster:
        """Somebody's scheduler at ``address``, or local workers being started. The caller closes it."""
        if address:
            if certificates.in_the_open(address):
                self.progress.say(f"{address} is not encrypted: who is on the way can read states, and change them")
            return Foreign(address, certificates.for_scheduler(address, security=self.security))
        if processes:
            shown = certificates.temporary(self.scratch / "tls") if self.security else None
            if shown is None:
                self.progress.say(f"{PLAIN}: security=False")
            return LocalWorkers(self.spec, n_workers, self.same_host, self.scratch, self.pace, self.protocol, shown)
        return LocalThreads(self.spec, n_workers, self.same_host, self.scratch)

    def core(self, cluster: Cluster, n_workers: int) -> Core:
        """Wait for the workers, compare who they are, and measure what they cost. The caller closes its hub.

        Raises
        ------
        ClusterError
            If workers do not come, or serve another model, or other weights under the same name.
        """
        hub, client = Hub(), cluster.client
        try:
            client.subscribe_topic(TOPIC, hub.on_dask_event)
            with self.progress.task(f"Starting {n_workers} workers with {self.spec.name}"):
                wait_for_workers(client, n_workers, lambda: _failed(cluster), _patience(cluster))
                told = told_by(client, self.spec.name)
            n_asked = len(client.scheduler_info(n_workers=-1)["workers"])
            first, seen = agreed(told, n_asked, self.spec, self.same_host, self.pace)
            core = Core(
                client=client,
                hub=hub,
                catalog=Catalog(
                    self.budget_bytes,
                    _phase_reporter(hub),
                    self.eviction,
                    device_budget_bytes=self.device_budget_bytes,
                    disk=self._disk(client, hub),
                ),
                model=first["identity"],
                config=first["config"],
                tokenizer=ChatTokenizer.load(self.spec.path, self.spec.name),
                namespace=self.namespace,
                same_host=self.same_host,
                chunk=self.chunk,
                workers=seen,
                progress=self.progress,
                pace=self.pace,
            )
            own = not isinstance(cluster, Foreign)
            hub.listen(lambda _, event: watch(core, event, lambda address: self._admit(core, address), own=own))
            client.register_plugin(WorkersSeen())
            self._catch_up(core, set(told))
            if isinstance(cluster, Foreign):
                for setting in client.run_on_scheduler(take_over_placement):
                    self.progress.say(f"Turned off on this scheduler, because kvlab places states itself: {setting}")
            measure = calibration.calibrate if self.calibrate else calibration.calibrated
            core.cost = measure(core, first["cores"])
            core.catalog.evictor.prices[core.model] = core.cost.prefill
            if core.catalog.disk is not None:
                disk = calibration.disk_link(core, self.scratch, anew=self.calibrate)
                core.cost = replace(core.cost, disk=disk)
                core.catalog.disk.seconds = disk.seconds
        except BaseException:
            hub.close()
            raise
        return core

    def _catch_up(self, core: Core, asked: set[str]) -> None:
        """Who came or went after all were asked who they are, and before it was told, is let in, or down."""
        there = core.client.scheduler_info(n_workers=-1)["workers"]
        for address in there.keys() - asked:
            self._admit(core, address)
        for worker in core.known_workers:
            if worker.address not in there:
                worker.address = None

    def _disk(self, client: Any, hub: Hub) -> DiskTier | None:
        def say(text: str) -> None:
            hub.emit(Kind.NOTE, detail={"text": text, "level": "warning"})

        return DiskTier(client, self.scratch, self.spill_bytes, say) if self.spill_bytes else None

    def _admit(self, core: Core, address: str) -> None:
        """Ask a worker that joined later who it is, and let it in if it serves what the others do."""

        def ask() -> None:
            try:
                told = told_by(core.client, self.spec.name, [address])
                if address not in told:
                    return  # a worker of something else
                _, seen = agreed(told, 1, self.spec, self.same_host, self.pace)
                require_same("this lab", (core.model, core.config), address, told[address])
            except ClusterError as refusal:
                logger.warning("%s", refusal)
                return
            except OSError:
                return  # gone again
            core.workers.update(seen)

        threading.Thread(target=ask, name="kvlab-admit", daemon=True).start()


def _phase_reporter(hub: Hub) -> PhaseChanged:
    def report(entry: StateEntry, now: Phase, then: Phase) -> None:
        hub.emit(Kind.STATE_PHASE, entry.run, state=entry.record.id, detail={"now": str(now), "then": str(then)})

    return report


def _patience(cluster: Cluster) -> float:
    """Seconds to wait for workers: own ones are being started, a foreign scheduler's are there or are not."""
    return FOREIGN_SECONDS if isinstance(cluster, Foreign) else START_SECONDS


def _failed(cluster: Cluster) -> str:
    if not isinstance(cluster, LocalWorkers):
        return ""
    return "; ".join(f"{name}: {cluster.log_tail(name)}" for name, status in cluster.ended().items() if status)


def stop_listening(client: Any) -> None:
    """Tell the scheduler that no events are wanted any more: else it may try to tell a client that has just closed."""
    from distributed.client import ClosedClientError

    with contextlib.suppress(ClosedClientError):
        client.unsubscribe_topic(TOPIC)
