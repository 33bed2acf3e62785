"""A run in the hand: its answers as they come, its tables, its report.

One file over the usual length, because it is one interface: what a person can do with a run.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlab.cost.policies import forced, oracle_of
from kvlab.errors import InvalidInput, KVLabError
from kvlab.runtime.beside import Speaker
from kvlab.runtime.conductor import Conductor
from kvlab.runtime.gate import Gate
from kvlab.runtime.handles import KVState
from kvlab.runtime.operations import Operations
from kvlab.runtime.recording import RunRecorder, announce_workers
from kvlab.runtime.remote_errors import as_error
from kvlab.runtime.reporting import FLUSH_SECONDS
from kvlab.runtime.units import Flow, PendingAction, edge_id, units_of
from kvlab.state.tokens import unpack_ids
from kvlab.store.events import Event, Kind
from kvlab.store.fold import World
from kvlab.store.saved import Tables
from kvlab.workflow.checks import checked_integer

if TYPE_CHECKING:
    import pyarrow as pa

    from kvlab.compiler.graph import Graph
    from kvlab.cost.decide import Policy
    from kvlab.cost.policies import Forced
    from kvlab.progress import Progress
    from kvlab.runtime.verbs import Verbs
    from kvlab.store.runs import RunFolder


logger = logging.getLogger(__name__)

DRAIN_SECONDS = 1.0
"""How long the end of a run waits for events of workers; those of a killed one never come."""


class Answer:
    """What one agent came to. Reading anything waits until the agent is done."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name

    @property
    def text(self) -> str:
        """The generated text, without control tokens."""
        return self._run.result_of(self._name)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids of all generated tokens, the stop token included; of a skipped turn, those of the one it stands for."""
        self._run.result_of(self._name)
        return self._run.ids_of(self._name)

    @property
    def state(self) -> KVState:
        """Its state; stateflow only."""
        self._run.result_of(self._name)
        if self._run.graph.by_id[self._name].tool is not None:
            raise InvalidInput(f"{self._name} is a tool: it has a text and no state", hint="ask who reads it")
        if self._name not in self._run.states:
            raise InvalidInput(f"{self._name} has no state in textflow", hint='run with flow="state"')
        return self._run.states[self._name]

    @property
    def turn(self) -> Mapping[str, Any]:
        """Its measured turn, see :class:`kvlab.bench.metrics.Turn`."""
        self._run.result_of(self._name)
        return self._run.turn_of(self._name)

    def __repr__(self) -> str:
        return f"<answer of {self._name}: {self._run.state_of(self._name)}>"

    def __str__(self) -> str:
        return self.text


class Run:
    """A workflow being run, or one that has run. Made by :meth:`kvlab.Lab.run`, which returns at once."""

    def __init__(
        self,
        verbs: Verbs,
        graph: Graph,
        folder: RunFolder,
        *,
        flow: Flow,
        namespace: str,
        paused: bool,
        workers: frozenset[str] | None,
        policy: Policy,
        overrides: Mapping[str, Forced],
        audit: bool,
        document: dict[str, Any],
        closing: Any,
    ) -> None:
        self.graph = graph
        self.flow = flow
        self.path: Path = folder.path
        self.name = folder.path.name
        self.states: dict[str, KVState] = {}
        self._verbs = verbs
        self._hub = verbs.core.hub
        self._recorder = RunRecorder(folder)
        self._changed = threading.Condition()
        self._over = False
        self._closing = closing
        self._gate = Gate(closed=paused)
        self._within = workers
        verbs.core.wait_for_worker()
        workers_now = verbs.core.living_workers()
        try:
            folder.write_config(document)
        except KVLabError:
            folder.discard()
            raise
        self._hub.add_sink(self.name, self._recorder)
        self._hub.emit(Kind.RUN_STARTED, self.name, detail=document)
        announce_workers(self._hub, self.name, workers_now)
        self._conductor = Conductor(
            verbs.core,
            {
                "" if one is verbs else name: Speaker(one.core, one.planner, Operations(one.core))
                for name, one in verbs.models.items()
            },
            graph,
            run=self.name,
            flow=flow,
            namespace=namespace,
            gate=self._gate,
            workers=workers,
            policy=policy,
            overrides=overrides,
            audit=audit,
            node_done=self._on_node_done,
            finished=self._on_finished,
        )
        self._conductor.thread.start()

    # -- the conductor's thread

    def _on_node_done(self, node: str) -> None:
        record = self._conductor.progress.states.get(node)
        if record is not None and node not in self.states:
            self.states[node] = KVState(self._verbs.models[record.model.name], record)
        with self._changed:
            self._changed.notify_all()

    def _on_finished(self) -> None:
        progress, now = self._conductor.progress, time.time_ns()
        try:
            self._hear_workers_out()
            error = str(progress.error) if progress.error else None
            held = self._gate.held_ns(0, now) / 1e9
            detail = {"status": progress.status, "error": error, "held_seconds": held, "stepped": self._gate.was_held}
            self._hub.emit(Kind.RUN_FINISHED, self.name, at_ns=now, detail=detail)
            self._hub.remove_sink(self.name)
            self._recorder.close()
            self._closing(self)
        except Exception as trouble:
            logger.exception("run %s could not be closed", self.name)
            progress.error = progress.error or as_error(trouble, f"the record of run {self.name} could not be closed")
        finally:
            # Nothing refers back from the conductor, so a dropped run gives its states back at once.
            self._conductor.forget_listeners()
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _hear_workers_out(self) -> None:
        """Workers send events every few milliseconds: wait for the last ones of this run, but not for a dead worker's."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            self._hub.settle()
            if self._recorder.all_actions_over():
                break
            time.sleep(FLUSH_SECONDS)
        time.sleep(2 * FLUSH_SECONDS)
        self._hub.settle()

    # -- waiting, pausing, cancelling

    @property
    def status(self) -> str:
        """``running``, ``paused``, ``done``, ``failed`` or ``cancelled``."""
        status = self._conductor.progress.status
        return "paused" if status == "running" and self._gate.closed else status

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self._over

    def wait(self, timeout: float | None = None, *, progress: Progress | None = None) -> Run:
        """Return this run when it is over, showing how far it is. Ctrl-C stops waiting and leaves the run.

        Raises
        ------
        KVLabError
            What made it fail; the answers that were made are still there.
        InvalidInput
            If it is paused: nothing would ever happen.
        TimeoutError
            After ``timeout`` seconds; the run goes on.
        """
        if self._gate.closed and not self._over:
            raise InvalidInput("the run is paused", hint="run.play() goes on, run.step() does one action")
        self._wait_showing(progress or self._verbs.core.progress, timeout)
        if self._conductor.progress.error is not None:
            raise self._conductor.progress.error
        if self._recorder.no_room is not None:
            raise self._recorder.no_room
        return self

    def settle(self, timeout: float) -> None:
        """Return when it is over, or after ``timeout`` seconds."""
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: self._over, timeout)

    def _wait(self, ready: Any, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            # Short waits let the main thread see Ctrl-C.
            while not self._changed.wait_for(ready, 0.2):
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"run {self.name} is still {self.status} after {timeout} s")

    def _wait_showing(self, progress: Progress, timeout: float | None) -> None:
        agents = [node for node in self.graph.nodes if node.sampling.max_new_tokens]
        total = sum(node.sampling.max_new_tokens for node in agents)
        spoken: dict[str, int] = {}
        within = f" on {', '.join(sorted(self._within))}" if self._within is not None else ""
        with progress.task(f"{self.graph.name} as {self.flow}flow{within}", total, "tokens") as task:

            def on_event(run: str, event: Event) -> None:
                if run == self.name and event.kind is Kind.TOKENS and event.agent is not None:
                    spoken[event.agent] = spoken.get(event.agent, 0) + (event.n_tokens or 0)
                    task.reach(min(total, sum(spoken.values())))

            stop = self._hub.listen(on_event)
            try:
                self._wait(lambda: self._over, timeout)
                task.reach(total)
            finally:
                stop()

    def play(self, *, speed: float | None = None, until: str | Collection[str] | None = None) -> Run:
        """Run on. Returns this run.

        Parameters
        ----------
        speed
            At most so many actions a second; None: as fast as it goes.
        until
            Pause again before the next action that meets this breakpoint, or one of these: an agent or context
            (``"editor"``), an operator (``"merge"``), a state that is started from (``"planner→"``), a state edge
            (``"planner→editor"``).
        """
        if speed is not None and not (isinstance(speed, int | float) and speed > 0):
            raise InvalidInput(f"speed={speed}", hint="actions a second, more than 0; run.pause() stops it")
        if not isinstance(until, str | Collection | None):
            raise InvalidInput(f"until={until!r}", hint="the name of a breakpoint, or several")
        names = [until] if isinstance(until, str) else list(until or ())
        known = self.breakpoints
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidInput(f"there is no {unknown[0]!r} to stop at", hint=f"breakpoints: {', '.join(known)}")
        self._gate.open(1 / speed if speed else 0.0, names)
        return self

    @property
    def breakpoints(self) -> list[str]:
        """What :meth:`play` can run to: agents, operators, states that are started from, and state edges."""
        return list(dict.fromkeys(stop for unit in units_of(self.graph, self.flow) for stop in sorted(unit.stops)))

    @property
    def pending(self) -> PendingAction | None:
        """What waits at the gate of a paused run, with the decision as it would be made now."""
        return self._conductor.pending

    def choose(self, how: str, worker: str | None = None, *, edge: str | None = None) -> Run:
        """Override the decision of the pending action's state edge, or of ``edge``. Returns this run.

        Raises
        ------
        InvalidInput
            If nothing is pending, the edge was decided already, or there is no such road or worker.
        """
        pending = self._conductor.pending
        edge = str(edge).replace("->", "→").replace(" ", "") if edge is not None else None
        edges = (
            [edge]
            if edge is not None
            else [f"{pending.edge.split('→')[0]}→{a}" for a in pending.agents]
            if pending
            else []
        )
        if not edges or edges[0].startswith("→"):
            raise InvalidInput(
                "no state edge is pending", hint="run.pending tells what waits; choose(..., edge=) names one"
            )
        known = [edge_id(node.parent, node.id) for node in self.graph.nodes if node.parent is not None]
        if edges[0] not in known:
            raise InvalidInput(f"there is no state edge {edges[0]!r}", hint=f"edges: {', '.join(known)}")
        if edges[0].split("→")[-1] in self._conductor.progress.done_ns:
            raise InvalidInput(f"{edges[0]} was decided already", hint="run it again with overrides={...}")
        if worker is not None and worker not in self._verbs.core.workers:
            names = ", ".join(self._verbs.core.workers)
            raise InvalidInput(f"there is no worker {worker!r}", hint=f"workers: {names}")
        self._conductor.override(edges, forced((how, worker) if worker is not None else how))
        return self

    def pause(self) -> Run:
        """Start nothing more; what runs, runs to its end. Returns this run."""
        self._gate.close()
        return self

    def step(self, actions: int = 1) -> Run:
        """Let so many actions through. Returns this run."""
        checked_integer("step(actions)", actions, 1)
        self._gate.step(actions)
        return self

    def cancel(self) -> Run:
        """End it: what runs stops at its next chunk or token. What was made before is kept. Returns this run."""
        self._conductor.cancel()
        return self

    # -- answers

    def __getitem__(self, agent: str) -> Answer:
        if agent not in self.graph.by_id:
            names = ", ".join(node.id for node in self.graph.nodes)
            raise InvalidInput(f"run {self.name} has no agent {agent!r}", hint=f"agents: {names}")
        return Answer(self, agent)

    def result_of(self, agent: str) -> str:
        """The agent's text, once it is done."""
        progress = self._conductor.progress
        if self._gate.closed and agent not in progress.done_ns and agent not in progress.failed and not self._over:
            raise InvalidInput(f"{agent} has not run: the run is paused", hint="run.play() or run.step()")
        self._wait(lambda: self._over or agent in progress.done_ns or agent in progress.failed, None)
        if agent in progress.failed:
            raise progress.failed[agent]
        if agent not in progress.texts and progress.error is not None:
            raise progress.error
        return progress.texts.get(agent, "")

    def ids_of(self, agent: str) -> tuple[int, ...]:
        """Ids that the agent's answer is made of, once it is done."""
        return unpack_ids(self._conductor.progress.outputs.get(agent, b""))

    def turn_of(self, agent: str) -> Mapping[str, Any]:
        """The measured turn of an agent that is done.

        Raises
        ------
        InvalidInput
            If it was skipped: then nothing was measured.
        """
        because = self._conductor.progress.skipped.get(agent)
        if because is not None:
            raise InvalidInput(f"{agent} has no turn: it was skipped, because {because}", hint="its text is there")
        self._hub.settle()
        for row in reversed(self.tables["turns"].to_pylist()):
            if row["agent"] == agent:
                return row
        raise KVLabError(f"no turn of {agent} is recorded", hint="run.status tells how far the run is")

    def state_of(self, agent: str) -> str:
        """``done``, ``skipped``, ``failed`` or ``waiting``."""
        progress = self._conductor.progress
        if agent in progress.skipped:
            return "skipped"
        return "failed" if agent in progress.failed else "done" if agent in progress.done_ns else "waiting"

    # -- the record

    @property
    def world(self) -> World:
        """What has happened so far, folded."""
        self._hub.settle()
        return self._recorder.world

    @property
    def tables(self) -> Tables:
        """Arrow tables of the run so far, by name."""
        self._hub.settle()
        return self._recorder.tables()

    @property
    def events(self) -> pa.Table:
        """Everything that has happened so far: a table of :data:`kvlab.store.schema.EVENTS`, mapped from the log."""
        self._hub.settle()
        return self._recorder.events()

    def oracle(self) -> Policy:
        """The policy that takes for each edge the road that was the fastest when this run was audited.

        Raises
        ------
        InvalidInput
            If the run was made without ``audit=True``.
        """
        return oracle_of(self.name, self.tables["edges"].to_pylist())

    def at(self, k: int) -> World:
        """The world after the first ``k`` events."""
        from kvlab.store.runs import open_run

        return open_run(self.path).at(k)

    def report(self, path: str | Path, *, against: Sequence[Any] = ()) -> Path:
        """Write a report of this run, compared with ``against`` (runs, saved runs): a folder, .html, .md or .json."""
        from kvlab.display.report import write_report

        return Path(write_report(path, [self, *against]))

    def follow(self, follower: Callable[[list[Event]], None]) -> tuple[pa.Table, Callable[[], None]]:
        """All events so far, and from now on every later one to ``follower``, on the hub's thread; and the undo."""
        self._hub.settle()
        return self._recorder.follow(follower)

    def inspect(self, **options: Any) -> Any:
        """The inspector of this run, for a cell: live while it runs. Needs ``kvlab[lab]``."""
        from kvlab.display.views import view

        return view("inspector", self, **options)

    def __repr__(self) -> str:
        done = sum(1 for node in self.graph.nodes if node.id in self._conductor.progress.done_ns)
        return f"<run {self.name}: {self.status}, {done} of {len(self.graph.nodes)} operators done, in {self.path}>"

    def _repr_html_(self) -> str:
        from kvlab.display.handles import run_html

        return run_html(self)
