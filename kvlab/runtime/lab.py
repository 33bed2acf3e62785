"""The lab: a model on workers, the states in their memory, and everything a person can do with them.

One file over the usual length, because it is one interface, most of it documentation.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from kvlab.compiler.compile import compile_workflow
from kvlab.compiler.graph import Graph
from kvlab.compiler.prompts import Spoken
from kvlab.cost.decide import Policy
from kvlab.cost.forecast import forecast
from kvlab.cost.policies import Forced, forced, policy_named
from kvlab.engine.models import ModelCard, describe, resolve
from kvlab.errors import InvalidInput, StateGone
from kvlab.policy.eviction import eviction_policy
from kvlab.progress import SHOWN, Progress
from kvlab.runtime import certificates, holders
from kvlab.runtime.beside import core_beside
from kvlab.runtime.core import Core, WorkerSeen
from kvlab.runtime.engines import ModelSpec
from kvlab.runtime.explaining import Explanation, explain
from kvlab.runtime.handles import KVState
from kvlab.runtime.lab_arguments import check, check_protocol, pace_of
from kvlab.runtime.memory import check_room, parse_budget, spill_limit
from kvlab.runtime.opening import Opening, stop_listening
from kvlab.runtime.remembered import Remembered
from kvlab.runtime.run import Run
from kvlab.runtime.scratch import make_scratch, remove_scratch
from kvlab.runtime.session import Session
from kvlab.runtime.units import edge_id
from kvlab.runtime.verbs import Verbs
from kvlab.state.lifecycle import Phase
from kvlab.store.environment import environment
from kvlab.store.graph_document import graph_document
from kvlab.store.runs import list_runs, new_run_folder
from kvlab.store.saved import SavedRun
from kvlab.workflow.checks import checked_integer, checked_label
from kvlab.workflow.workflow import Workflow

if TYPE_CHECKING:
    from distributed.security import Security

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "smollm2"
CLOSING_SECONDS = 8.0
"""How long closing waits for a cancelled run to write its end."""
SameHost = Literal["map", "frames"]
Protocol = Literal["tcp", "ucxx"]


class Lab(metaclass=Remembered):
    """A model loaded on Dask workers, and the KV states that live there.

    The same arguments give the running lab again; a cell that is run again with others closes the lab it made before.

    Parameters
    ----------
    address
        Of a Dask scheduler whose workers were started by ``kvlab worker``; None starts local workers.
    model
        A name (``"smollm2"`` is embedded) or a folder.
    workers
        How many local workers.
    namespace
        States of different namespaces never share anything.
    kv_budget
        Bytes of K/V that may lie in memory, e.g. ``"2 GiB"``; a quarter of what is free by default.
    device_kv_budget
        As ``kv_budget``, for what each worker holds itself: its share on a CPU, its GPU's memory on CUDA. None: no limit.
    spill_bytes
        What K/V that had to leave memory may take on this machine's disk, e.g. ``"4 GiB"``; 0 turns it off. By default 4
        GiB, or a quarter of what is free if that is less, and nothing where the folder for temporary files lies in memory.
    eviction
        Who goes first where that is not enough: ``"workflow"`` (least worth until its next use, which graphs know),
        ``"lru"``, ``"arc"``, or, as a reference inside runs, ``"belady"``.
    device, dtype
        ``"auto"``: CUDA where there is one, else the CPU; fp32 on CPU.
    processes
        False runs the workers inside this process.
    same_host
        ``"map"`` lets workers of one host map each other's states; ``"frames"`` sends bytes, as between hosts.
    link_rate, link_latency
        With ``same_host="frames"``: pace what a worker sends to each other worker, e.g. to ``"120 Mbit/s"`` (a number
        is bit/s) and ``"2 ms"`` a message (a number is seconds). The frames are real; the sender holds them back.
    protocol
        ``"ucxx"`` carries frames through UCX (RDMA, NVLink, shared memory) and needs ``pip install 'kvlab[ucx]'``.
    security
        Local workers speak TLS with certificates that are made for them and end with the lab; False turns that off. For
        a scheduler at ``tls://``: a ``distributed.security.Security`` with the certificates that it wants to see.
    calibrate
        Measure prefill, decode and links thoroughly (half a minute) instead of using what is kept of this machine.
    prefill_chunk
        Tokens a prefill does between two reports of progress.
    progress
        Where start-up is shown.

    Raises
    ------
    KVLabError
        With what to try: an unknown model, no room, a scheduler that does not answer, an unknown keyword.
    """

    @classmethod
    def check(cls, arguments: dict[str, Any]) -> None:
        """Raise what :class:`Lab` would raise for arguments that cannot be meant, without starting anything."""
        check(*(arguments[name] for name in ("workers", "same_host", "prefill_chunk", "dtype", "namespace")))
        names = ("link_rate", "link_latency", "address", "same_host", "processes")
        pace_of(**{name: arguments[name] for name in names})
        check_protocol(
            arguments["protocol"],
            arguments["same_host"],
            own=arguments["processes"] and not arguments["address"],
            encrypted=arguments["security"] is not False,
        )
        certificates.check(arguments["security"], arguments["address"])
        parse_budget(arguments["kv_budget"])
        parse_budget(arguments["device_kv_budget"], "device_kv_budget")
        spill_limit(arguments["spill_bytes"], None, own=not arguments["address"])
        eviction_policy(arguments["eviction"])
        describe(resolve(arguments["model"], arguments["progress"] or SHOWN))

    def __init__(
        self,
        address: str | None = None,
        *,
        model: str = DEFAULT_MODEL,
        workers: int = 2,
        namespace: str = "",
        kv_budget: int | str | None = None,
        device_kv_budget: int | str | None = None,
        spill_bytes: int | str | None = None,
        eviction: str = "workflow",
        device: str = "auto",
        dtype: str = "auto",
        processes: bool = True,
        same_host: SameHost = "map",
        link_rate: str | float | None = None,
        link_latency: str | float | None = None,
        protocol: Protocol = "tcp",
        security: bool | Security = True,
        calibrate: bool = False,
        prefill_chunk: int = 1024,
        progress: Progress = SHOWN,
    ) -> None:
        path = resolve(model, progress)
        self.card: ModelCard = describe(path)
        self._copies = 0 if address else workers if processes else 1
        self._budget_bytes = check_room(self.card, self._copies, parse_budget(kv_budget), dtype, progress.say)
        self._folders = {self.card.name: path}
        self._scratch = make_scratch()
        self._closed = threading.Lock()
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        with contextlib.ExitStack() as opened:
            opened.callback(remove_scratch, self._scratch)
            opening = Opening(
                spec=ModelSpec(self.card.name, str(path), device, dtype),
                scratch=self._scratch,
                same_host=same_host,
                namespace=namespace,
                chunk=prefill_chunk,
                budget_bytes=self._budget_bytes,
                device_budget_bytes=parse_budget(device_kv_budget, "device_kv_budget"),
                spill_bytes=spill_limit(spill_bytes, self._scratch, own=not address),
                eviction=eviction_policy(eviction),
                progress=progress,
                calibrate=calibrate,
                protocol=protocol,
                security=security,
                pace=pace_of(link_rate, link_latency, address, same_host, processes=processes),
            )
            cluster = opening.cluster(address, workers, processes=processes)
            opened.callback(cluster.close)
            self._cluster = cluster
            self.core = opening.core(cluster, 1 if address else workers)
            opened.callback(self.core.hub.close)
            opened.callback(stop_listening, self.core.client)
            self._session = Session(self.core, self._scratch / "session", self._record_document(self.core.workers))
            opened.callback(self._session.close)
            self._verbs = Verbs(self.core)
            self._opened = opened.pop_all()
        _at_exit(self.close)

    # -- workflows

    def compile(self, workflow: Workflow, *, min_shared_tokens: int | None = None) -> Graph:
        """G_s of a workflow: what will run, what state and text flow, what must be recomputed and why. Runs nothing.

        A shared prefix shorter than ``min_shared_tokens`` is no state of its own; by default, one whose repeated
        prefill by its model is cheaper on this machine than another task. The graph carries a forecast of what it will cost.
        """
        self._require_open()
        if not isinstance(workflow, Workflow):
            raise InvalidInput(
                f"{workflow!r} is no workflow",
                hint='wf = kvlab.Workflow("name"), or kvlab.workloads.build("tree") for one that is there',
            )
        graph = compile_workflow(
            workflow,
            self.core.tokenizer,
            min_shared_tokens=_least_shared(self.core, min_shared_tokens),
            max_positions=self.core.config.max_positions,
            model=self.card.name,
            models={name: _spoken(verbs.core, min_shared_tokens) for name, verbs in self._verbs.models.items()},
        )
        costs = {verbs.core.model.name: verbs.core.cost for verbs in self._verbs.models.values()}
        return replace(graph, forecast=forecast(graph, {**costs, "": self.core.cost}))

    def run(
        self,
        workflow: Workflow,
        *,
        flow: Literal["state", "text"] = "state",
        workers: int | Sequence[str] | None = None,
        paused: bool = False,
        name: str | None = None,
        min_shared_tokens: int | None = None,
        policy: str | Policy = "cheapest",
        overrides: Mapping[str, str | tuple[str, str]] | None = None,
        audit: bool = False,
        root: str | os.PathLike[str] | None = None,
    ) -> Run:
        """Start a workflow and return at once.

        Parameters
        ----------
        flow
            ``"state"`` hands K/V on; ``"text"`` is the baseline: every agent prefills its whole conversation.
        workers
            Use only so many workers, or these.
        paused
            Wait for ``run.play()`` or ``run.step()`` before the first action.
        name
            Of the run's folder; the workflow's by default.
        min_shared_tokens
            As in :meth:`compile`.
        policy
            Chooses the road of every state edge: ``"cheapest"``, ``"always-transfer"``, ``"always-recompute"``,
            ``"threshold(512)"``, or a :class:`kvlab.cost.decide.Policy`.
        overrides
            What you want for single edges, whatever the policy: ``{"planner→editor": "recompute"}``, or with a worker
            ``{"planner→editor": ("transfer", "w1")}``. Where that road is not open the edge says so.
        audit
            When the work is done, take every road of every edge once more, measure it, and record what the choice cost
            over the best one. Changes no state; the run takes longer by that.
        root
            Folder that the run's folder is made in; ``$KVLAB_RUNS`` by default, else ``./runs``.
        """
        self._require_open()
        chosen_policy = policy_named(policy)
        if flow not in ("state", "text"):
            raise InvalidInput(f"flow={flow!r}", hint='flow="state" or flow="text"')
        if name is not None:
            checked_label("name", name)
        graph = self.compile(workflow, min_shared_tokens=min_shared_tokens)
        for warning in graph.warnings:
            logger.warning("%s", warning)
        chosen = self._chosen_workers(workers)
        wanted = self._overrides(graph, overrides or {})
        folder = new_run_folder(name or f"{workflow.name}-{flow}", root=root)
        # Only states made in this run are reused, so that its figures stand alone.
        namespace = f"{self.core.namespace}/{folder.path.name}"
        marks = self._log_marks()
        document = {
            "name": workflow.name,
            "flow": flow,
            "graph": graph_document(graph),
            "forecast": asdict(graph.forecast) if graph.forecast is not None else None,
            **self._record_document(chosen or self.core.workers),
            "models": [
                _identity_document(verbs.core) for name, verbs in self._verbs.models.items() if name in self._folders
            ],
            "namespace": namespace,
            "policy": chosen_policy.name,
            "audit": audit,
        }
        run = Run(
            self._verbs,
            graph,
            folder,
            flow=flow,
            namespace=namespace,
            paused=paused,
            workers=chosen,
            policy=chosen_policy,
            overrides=wanted,
            audit=audit,
            document=document,
            closing=lambda _: self._keep_logs(marks, folder.logs),
        )
        # Weakly: a run that nobody holds gives its states back.
        self._runs.add(run)
        return run

    def _record_document(self, workers: Collection[str]) -> dict[str, Any]:
        """What a record says of the lab that it was made in."""
        pace = self.core.pace
        return {
            "model": _identity_document(self.core),
            "config": {"bytes_per_token": self.core.config.bytes_per_token, "dtype": self.core.config.dtype},
            "namespace": self.core.namespace,
            "lab": {
                "workers": sorted(workers),
                "same_host": self.core.same_host,
                "wire": self.core.wire,
                "link_rate_bits": pace.bits_per_second if pace else None,
                "link_latency_seconds": pace.latency_seconds if pace else None,
                "kv_budget_bytes": self._budget_bytes,
                "device_kv_budget_bytes": self.core.catalog.budget.device_limit_bytes,
                "spill_bytes": self.core.catalog.disk.limit_bytes if self.core.catalog.disk else 0,
                "prefill_chunk": self.core.chunk,
                "cost": self.core.cost.as_dict(),
            },
            "environment": environment(),
        }

    def add_model(self, model: str) -> str:
        """Load another model on every worker, beside the lab's own, and return its name. ``wf.agent(model=)`` takes either.

        States of different models are never joined: where an agent continues another model's, its conversation is read
        as text, and the edge says what differs. A model that is there already is not loaded again.

        Parameters
        ----------
        model
            A name or a folder, which must be on every worker's machine.

        Raises
        ------
        KVLabError
            With what to try: an unknown model, no room for its weights, a worker that cannot load it.
        """
        self._require_open()
        path = resolve(model, self.core.progress)
        name = describe(path).name
        known = self._folders.setdefault(name, path)
        if known != path:
            raise InvalidInput(
                f"this lab has another {name!r}, of {known}", hint="give one of the folders another name"
            )
        if name not in self._verbs.models:
            Verbs(core_beside(self.core, path, n_copies=self._copies), self._verbs.models)
        self._verbs.models.setdefault(model, self._verbs.models[name])
        return name

    def inspect(self, **options: Any) -> Any:
        """The inspector of this lab, for a cell: every state that verbs make one by one, as it is made, from the first on.

        A workflow has its own: ``run.inspect()``. Needs ``kvlab[lab]``.
        """
        from kvlab.display.views import view

        return view("inspector", self._session, **options)

    def _overrides(self, graph: Graph, told: Mapping[str, str | tuple[str, str]]) -> dict[str, Forced]:
        edges = [edge_id(node.parent, node.id) for node in graph.nodes if node.parent is not None]
        found: dict[str, Forced] = {}
        if not isinstance(told, Mapping):
            raise InvalidInput(f"overrides={told!r}", hint='{"planner→editor": "recompute"}')
        for name, wanted in told.items():
            edge = str(name).replace("->", "→").replace(" ", "")
            if edge not in [known.replace(" ", "") for known in edges]:
                raise InvalidInput(f"there is no state edge {name!r}", hint=f"edges: {', '.join(edges)}")
            choice = forced(wanted)
            if choice.worker is not None and choice.worker not in self.core.workers:
                names = ", ".join(self.core.workers)
                raise InvalidInput(f"there is no worker {choice.worker!r}", hint=f"workers: {names}")
            found[next(known for known in edges if known.replace(" ", "") == edge)] = choice
        return found

    def _chosen_workers(self, workers: int | Sequence[str] | None) -> frozenset[str] | None:
        if workers is None:
            return None
        self.core.wait_for_worker()
        names = [worker.name for worker in self.core.living_workers()]
        if not isinstance(workers, int | list | tuple | set | frozenset):
            raise InvalidInput(f"workers={workers!r}", hint="how many of them, or their names")
        if isinstance(workers, int):
            if not 1 <= workers <= len(names):
                raise InvalidInput(f"workers={workers}", hint=f"this lab has {len(names)} workers")
            return frozenset(names[:workers])
        unknown = [name for name in workers if name not in names]
        if unknown or not workers:
            raise InvalidInput(f"there is no worker {unknown}", hint=f"workers: {', '.join(names)}")
        return frozenset(workers)

    # -- states

    def materialize(self, text: str, *, chat: bool = False, name: str = "", worker: str | None = None) -> KVState:
        """Prefill ``text`` and hold its K/V. What a resident state already has as a prefix is reused.

        With ``chat`` the text opens the user's turn of a conversation; ``state.resume(..., chat=True)`` closes it.
        """
        return self._verbs.materialize(text, chat=chat, name=name, worker=worker)

    def load(self, folder: str | Path, *, name: str = "", worker: str | None = None) -> KVState:
        """Bring a saved state back, to ``worker`` if that is named. One of another model is refused, naming what differs."""
        self._require_open()
        return self._verbs.load(folder, name, worker)

    def explain(self, prompt: str, *, chat: bool = False) -> Explanation:
        """Why this prompt would, or would not, reuse something: the longest usable state and the first difference."""
        self._require_open()
        return explain(self.core, prompt, chat=chat)

    @property
    def states(self) -> Any:
        """Arrow table of the states: what they are, where they lie, and who holds them."""
        return holders.states_table(self.core)

    def clear(self) -> int:
        """Evict every state that is not pinned, and forget those that only the notebook's output history holds.

        Returns the bytes given back. States in variables stay usable: they are recomputed when they are used.
        """
        self._require_open()
        holders.forget_outputs()
        freed = self.core.catalog.clear()
        self.core.catalog.reap()
        self.core.catalog.leaving.wait()
        return freed

    @property
    def runs(self) -> list[SavedRun]:
        """Runs recorded so far, oldest first."""
        return list_runs()

    @property
    def workers(self) -> dict[str, WorkerSeen]:
        """Workers by name."""
        return dict(self.core.workers)

    # -- ending

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed.locked()

    def close(self) -> None:
        """Cancel what still runs, stop the workers it started, and give back their memory and files.

        A second call does nothing.
        """
        if not self._closed.acquire(blocking=False):
            return
        Remembered.forget(self)
        for verbs in self._verbs.models.values():
            verbs.core.closed = True
        going = [run for run in self._runs if not run.over]
        for run in going:
            run.cancel()
        for run in going:
            run.settle(CLOSING_SECONDS)
        self._opened.close()

    def _require_open(self) -> None:
        if self.closed:
            raise StateGone("this lab is closed", hint="kvlab.Lab() opens another")
        self.core.require_scheduler()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- logs

    def _log_marks(self) -> dict[Path, int]:
        return {log: log.stat().st_size for log in self._scratch.glob("*.log")}

    def _keep_logs(self, marks: dict[Path, int], folder: Path) -> None:
        """Copy what the workers logged since ``marks`` into a run's folder."""
        for log in self._scratch.glob("*.log"):
            with log.open("rb") as source:
                source.seek(marks.get(log, 0))
                (folder / log.name).write_bytes(source.read())

    def __repr__(self) -> str:
        if self.closed:
            return "<closed lab>"
        living = [entry for entry in self.core.catalog.states() if entry.phase is Phase.RESIDENT]
        used = self.core.catalog.budget.used_bytes
        paced = f"links paced to {self.core.pace}, " if self.core.pace else ""
        return (
            f"<lab: {self.card.name} on {len(self.core.workers)} workers, {paced}{len(living)} states, "
            f"{used / 2**20:.1f} of {self._budget_bytes / 2**20:.0f} MiB of K/V>"
        )

    def _repr_html_(self) -> str:
        from kvlab.display.handles import lab_html

        return lab_html(self)


def _at_exit(close: Callable[[], None]) -> None:
    """Call ``close`` when Python ends: before thread pools are shut down, which Dask needs to say goodbye."""
    method = weakref.WeakMethod(close)

    def still_there() -> None:
        alive = method()
        if alive is not None:
            alive()

    # Private, but the only hook that comes before concurrent.futures has ended its own.
    getattr(threading, "_register_atexit", atexit.register)(still_there)


def _spoken(core: Core, min_shared_tokens: int | None) -> Spoken:
    least = _least_shared(core, min_shared_tokens)
    return Spoken(core.tokenizer, core.config.max_positions, core.model, core.config, least)


def _least_shared(core: Core, wanted: int | None) -> int:
    return core.cost.tokens_worth_a_task() if wanted is None else checked_integer("min_shared_tokens", wanted, 1)


def _identity_document(core: Core) -> dict[str, Any]:
    return {"name": core.model.name, "weights": core.model.weights, "tokenizer": core.model.tokenizer}
