"""Opening a lab: from settings to workers with a loaded model, and the core that everything shares."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvlab.engine.chat import ChatTokenizer
from kvlab.errors import ClusterError
from kvlab.policy.eviction import EvictionPolicy
from kvlab.progress import Progress
from kvlab.runtime import calibration
from kvlab.runtime.catalog import Catalog, PhaseChanged
from kvlab.runtime.cluster import Cluster, Foreign, LocalThreads, LocalWorkers, wait_for_workers
from kvlab.runtime.core import Core, WorkerSeen
from kvlab.runtime.engines import ModelSpec
from kvlab.runtime.entries import StateEntry
from kvlab.runtime.hub import Hub
from kvlab.runtime.replicas import take_over_placement
from kvlab.runtime.reporting import TOPIC
from kvlab.runtime.scheduler_plugin import WorkersSeen
from kvlab.runtime.spilling import DiskTier
from kvlab.runtime.watching import watch
from kvlab.runtime.worker_plugin import PLUGIN_NAME, plugin_of
from kvlab.runtime.worker_process import START_SECONDS
from kvlab.state.lifecycle import Phase
from kvlab.store.events import Kind
from kvlab.transport.link_pace import LinkPace

logger = logging.getLogger(__name__)

FOREIGN_SECONDS = 10.0


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

    def cluster(self, address: str | None, n_workers: int, *, processes: bool) -> Cluster:
        """Somebody's scheduler at ``address``, or local workers being started. The caller closes it."""
        if address:
            return Foreign(address)
        if processes:
            return LocalWorkers(self.spec, n_workers, self.same_host, self.scratch, self.pace, self.protocol)
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
                told = client.run(_describe_worker)
            first, seen = self._agreed({address: one for address, one in told.items() if one is not None}, len(told))
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
            hub.listen(lambda _, event: watch(core, event, lambda address: self._admit(core, address)))
            client.register_plugin(WorkersSeen())
            if isinstance(cluster, Foreign):
                for setting in client.run_on_scheduler(take_over_placement):
                    self.progress.say(f"Turned off on this scheduler, because kvlab places states itself: {setting}")
            measure = calibration.calibrate if self.calibrate else calibration.calibrated
            core.cost = measure(core, first["cores"])
            core.catalog.evictor.seconds = core.cost.prefill.seconds
            if core.catalog.disk is not None:
                disk = calibration.disk_link(core, self.scratch, anew=self.calibrate)
                core.cost = replace(core.cost, disk=disk)
                core.catalog.disk.seconds = disk.seconds
        except BaseException:
            hub.close()
            raise
        return core

    def _disk(self, client: Any, hub: Hub) -> DiskTier | None:
        def say(text: str) -> None:
            hub.emit(Kind.NOTE, detail={"text": text, "level": "warning"})

        return DiskTier(client, self.scratch, self.spill_bytes, say) if self.spill_bytes else None

    def _admit(self, core: Core, address: str) -> None:
        """Ask a worker that joined later who it is, and let it in if it serves what the others do."""

        def ask() -> None:
            told = core.client.run(_describe_worker, workers=[address], on_error="return").get(address)
            if not isinstance(told, dict):
                return
            try:
                _, seen = self._agreed({address: told}, 1)
            except ClusterError as refusal:
                logger.warning("%s", refusal)
                return
            if (told["identity"], told["config"]) == (core.model, core.config):
                core.workers.update(seen)

        threading.Thread(target=ask, name="kvlab-admit", daemon=True).start()

    def _agreed(self, told: dict[str, Any], n_workers: int) -> tuple[dict[str, Any], dict[str, WorkerSeen]]:
        mine = {address: one for address, one in told.items() if one["identity"].name == self.spec.name}
        if not mine:
            others = ", ".join(sorted({one["identity"].name for one in told.values()})) or "no model of kvlab"
            raise ClusterError(
                f"none of the {n_workers} workers serves {self.spec.name}; they serve {others}",
                hint=f"start one with `kvlab worker ADDRESS --model {self.spec.name}`",
            )
        first = next(iter(mine.values()))
        for address, one in mine.items():
            if (one["identity"], one["config"]) != (first["identity"], first["config"]):
                raise ClusterError(
                    f"the workers at {address} and {first['address']} serve different weights or settings of {self.spec.name}",
                    hint="start all workers with the same model folder, device and dtype",
                )
            if one["same_host"] != self.same_host:
                raise ClusterError(
                    f"the worker at {address} was started with --same-host {one['same_host']}, this lab with {self.same_host}",
                    hint=f"Lab(..., same_host={one['same_host']!r}), or start the workers otherwise",
                )
            if one["pace"] != self.pace:
                raise ClusterError(
                    f"the worker at {address} has {_links(one['pace'])}, this lab has {_links(self.pace)}",
                    hint="a lab paces the links of the workers that it starts; leave out --link-rate for others",
                )
            if self.spec.dtype not in ("auto", one["config"].dtype):
                raise ClusterError(
                    f"the worker at {address} computes in {one['config'].dtype}, this lab wants {self.spec.dtype}",
                    hint=f"start the workers with --dtype {self.spec.dtype}",
                )
        fields = ("host", "pid", "cores", "device", "memory_bytes")
        seen = {
            one["name"]: WorkerSeen(one["name"], address, *(one[field] for field in fields))
            for address, one in mine.items()
        }
        return first, seen


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


def _links(pace: LinkPace | None) -> str:
    return "links that are not paced" if pace is None else f"links paced to {pace}"


def _describe_worker(dask_worker: Any) -> dict[str, Any] | None:
    return plugin_of(dask_worker).describe() if PLUGIN_NAME in dask_worker.plugins else None
