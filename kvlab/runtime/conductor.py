"""The conductor of one run: what is ready is decided, passes the gate, is submitted; what is done makes others ready.

One thread a run. Dask's callbacks and the lab's events only enqueue; every change of the run's progress happens on the
conductor's thread, so it needs no locks of its own.

One file over the usual length, because it is one loop: launching, receiving and failing change the same progress, and
are read together.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kvlab.compiler.graph import Call, Graph, Node, OutputOf, Piece, flat
from kvlab.compiler.resolve import resolve
from kvlab.cost.decide import Decision, Policy
from kvlab.cost.policies import Forced
from kvlab.engine.protocol import Branch
from kvlab.errors import Cancelled, ChecksumMismatch, KVLabError, NoRoom, NoWorker, TransferFailed
from kvlab.policy.eviction import NEVER
from kvlab.runtime import tasks
from kvlab.runtime.auditing import Auditor
from kvlab.runtime.beside import Speaker
from kvlab.runtime.core import Core
from kvlab.runtime.deciding import Decider
from kvlab.runtime.gate import Gate
from kvlab.runtime.operations import Answered
from kvlab.runtime.orders import MODEL_WORK, Order
from kvlab.runtime.remote_errors import FAILED, as_error, error_of, fetched
from kvlab.runtime.requests import Request
from kvlab.runtime.stopping import ask_to_stop
from kvlab.runtime.telling import tell_decision, tell_refused
from kvlab.runtime.tool_calls import ToolCall
from kvlab.runtime.turns import Timeline, because, turn_of
from kvlab.runtime.units import Flow, PendingAction, Progress, Unit, edge_id, units_of
from kvlab.state.records import StateRecord
from kvlab.state.tokens import n_ids
from kvlab.store.events import Kind

logger = logging.getLogger(__name__)

CANCEL_SECONDS = 5.0
"""How long a cancelled run waits for workers to stop at their next chunk or token."""

HOPE_SECONDS = 1.0
"""How often a run that waits asks whether there is still somebody to wait for."""

ROOM_SECONDS = 0.05
"""How often a run of which nothing is at work asks again for the room that others have."""

RETRIES = 2
"""How often an action whose state did not arrive is tried again, recomputing it."""


class Conductor:
    """Runs ``graph`` on ``core``. ``node_done(node)`` is called on the conductor's thread after each node.

    ``speakers`` are the lab's models, the one of ``core`` without a name. ``overrides`` are what a person wants for single
    state edges, by their ids; all others go by ``policy``.
    """

    def __init__(
        self,
        core: Core,
        speakers: Mapping[str, Speaker],
        graph: Graph,
        *,
        run: str,
        flow: Flow,
        namespace: str,
        gate: Gate,
        workers: frozenset[str] | None,
        policy: Policy,
        overrides: Mapping[str, Forced],
        audit: bool,
        node_done: Callable[[str], None],
        finished: Callable[[], None],
    ) -> None:
        self.core, self.graph, self.run, self.flow, self.namespace = core, graph, run, flow, namespace
        self.gate = gate
        self._audit = audit
        self._decided_units: list[tuple[Unit, StateRecord, tuple[Branch, ...]]] = []
        self._speakers = speakers
        self.progress = Progress()
        self._node_done, self._finished = node_done, finished
        self._inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._units = units_of(graph, flow)
        self._running: dict[str, Unit] = {}
        self._postponed: list[Unit] = []
        """Ready, and without room or a worker."""
        self._again: list[Unit] = []
        """What failed and is tried again: not launched where that is heard, because another action may wait at the gate."""
        self._timeline = Timeline()
        self._refused = {edge.target: edge for edge in graph.state_edges if edge.fields and flow == "state"}
        """By their target: edges from a state of another model or namespace, whose text is prefilled."""
        self._cancelled = False
        self._waiting_unit: Unit | None = None
        self._give_up_at = 0.0
        self._prefix = f"{run}/{secrets.token_hex(3)}/"
        self._decider = Decider(speakers, self._prefix, workers, policy, overrides)
        self._start_ns = 0
        self._next_uses: Mapping[str, float] = {}
        """State → launches until its next use. Others read it: it is replaced, never changed."""
        self.thread = threading.Thread(target=self._conduct, name=f"kvlab-run-{run}", daemon=True)

    # -- from other threads

    def cancel(self) -> None:
        """Stop what runs at its next chunk or token and start nothing more."""
        self._cancelled = True
        self.gate.cancel()
        self._inbox.put(("cancel", None))

    @property
    def pending(self) -> PendingAction | None:
        """The action that waits at the gate now, and how its edge would be decided; None when nothing waits."""
        unit = self._waiting_unit
        if unit is None or not self.gate.closed or self.gate.waiting is None:
            return None
        node = unit.nodes[0]
        op = self._op(node)
        agents = tuple(one.id for one in unit.nodes)
        parent = self._parent(node) if self.flow == "state" else None
        if parent is None or not node.pieces:
            return PendingAction(unit.action, op, agents)
        return PendingAction(unit.action, op, agents, unit.edges[0], self._decider.preview(unit, parent))

    def override(self, edges: Collection[str], choice: Forced) -> None:
        """From now on these edges go as a person wants it; those already decided are not changed."""
        self._decider.override(edges, choice)

    def forget_listeners(self) -> None:
        """The run is over: refer to nobody any more."""
        self._node_done = lambda _: None
        self._finished = lambda: None

    # -- the conductor's thread

    def _conduct(self) -> None:
        try:
            with self.core.catalog.evictor.knowing(self._next_use):
                self._loop()
            if self._audit and not self._cancelled:
                self._take_other_roads()
            failed = self.progress.failed
            self.progress.status = "cancelled" if self._cancelled else "failed" if failed else "done"
            self.progress.error = next(iter(failed.values()), None)
        except Exception as error:  # whatever it is, the person who waits must be told
            logger.exception("run %s failed", self.run)
            self.progress.status, self.progress.error = "failed", as_error(error, f"run {self.run} failed")
            for unit in list(self._running.values()):
                if unit.pending is not None:
                    self._at(unit.nodes[0]).operations.abandon(unit.pending)
                self._retire(unit)
                unit.forget_work()
        finally:
            self.core.catalog.end_all(self._prefix)
            self.core.catalog.give_up_all(self.run)
            self._finished()

    def _loop(self) -> None:
        waiting = list(self._units)
        self._start_ns = time.time_ns()
        while waiting or self._running or self._again:
            self._next_uses = self._foreseen(waiting)
            for unit in [unit for unit in waiting if self._ready(unit)]:
                if self._must_queue(unit):
                    continue
                waiting.remove(unit)
                unit.ready_ns = max([self._start_ns, *(self.progress.done_ns[name] for name in self._waits_for(unit))])
                self._launch(unit)
            waiting = self._without_hopeless(waiting)
            for unit in waiting:
                self._send_ahead(unit)
            if self._running:
                self._receive(*self._next_message())
            elif self._postponed:
                self._wait_for_others()
            elif waiting and not self._again and not any(self._ready(unit) for unit in waiting):
                names = ", ".join(unit.name for unit in waiting)
                raise KVLabError(f"nothing can make {names} ready", hint="this is a bug in the compiled graph")
            waiting = sorted([*self._again, *self._postponed, *waiting], key=lambda unit: unit.place)
            self._again, self._postponed = [], []

    def _must_queue(self, unit: Unit) -> bool:
        """Whether a unit stays behind those that wait: with every worker busy it would only take their room.

        So room is given in the order in which the states are said to be used next.
        """
        needs_room = unit.nodes[0].tool is None and bool(unit.nodes[0].pieces or self.flow == "text")
        return needs_room and bool(self._postponed) and self._n_at_work() >= self.core.n_up

    def _n_at_work(self) -> int:
        """Units that a worker has; a tool needs none."""
        return sum(unit.call is None for unit in self._running.values())

    def _wait_for_others(self) -> None:
        """Nothing of this run is at work: verbs or other runs will give room back, or a worker comes."""
        with contextlib.suppress(queue.Empty):
            self._receive(*self._inbox.get(timeout=ROOM_SECONDS))
        self.core.require_hope()

    def _next_use(self, state: str) -> float | None:
        return self._next_uses.get(state)

    def _foreseen(self, waiting: list[Unit]) -> dict[str, float]:
        """When each state of this run is used next, as far as the graph says, in launches.

        Units are launched in the order of the graph, but for those that are not ready when their turn comes. A state is
        used by what continues it: who only reads its text does not need it. Where it is continued more than once, the first
        time counts.
        """
        foreseen = dict.fromkeys((record.id for record in self.progress.states.values()), NEVER)
        for steps, unit in enumerate(waiting, start=1):
            for name in {node.parent for node in unit.nodes if node.parent is not None}:
                if name not in self.progress.states:
                    continue
                state = self.progress.states[name].id
                foreseen[state] = min(foreseen[state], float(steps))
        return foreseen

    def _next_message(self) -> tuple[str, Any]:
        """What comes next. A cancelled run does not wait longer than it must for workers that do not answer."""
        while not self._cancelled:
            try:
                return self._inbox.get(timeout=HOPE_SECONDS)
            except queue.Empty:
                self.core.require_hope()
        if not self._give_up_at:
            self._give_up_at = time.monotonic() + CANCEL_SECONDS
        if time.monotonic() >= self._give_up_at:  # an answer that cannot be fetched comes again and again
            return "give up", None
        try:
            return self._inbox.get(timeout=max(0.0, self._give_up_at - time.monotonic()))
        except queue.Empty:
            return "give up", None

    def _waits_for(self, unit: Unit) -> list[str]:
        node = unit.nodes[0]
        return list(node.text_parents if self.flow == "text" else node.waits_for)

    def _ready(self, unit: Unit) -> bool:
        return all(name in self.progress.done_ns for name in self._waits_for(unit))

    def _without_hopeless(self, waiting: list[Unit]) -> list[Unit]:
        hopeful = []
        for unit in waiting:
            lost = [name for name in self._waits_for(unit) if name in self.progress.failed]
            if not lost and not self._cancelled:
                hopeful.append(unit)
                continue
            reason = "the run was cancelled" if self._cancelled else f"{lost[0]} failed"
            hint = "run the workflow again" if self._cancelled else "see the first error"
            for node in unit.nodes:
                self.progress.failed[node.id] = Cancelled(f"{node.id} did not run: {reason}", hint=hint)
                self._node_done(node.id)
        return hopeful

    # -- launching

    def _launch(self, unit: Unit) -> None:
        ended = self.core.catalog.n_ended
        try:
            if self._is_stopped(unit.nodes[0]):
                self._skip(unit.nodes[0])
                return
            if unit.nodes[0].tool is not None:
                self._call(unit, unit.nodes[0].tool)
                return
            if self.flow == "state" and not unit.nodes[0].pieces:
                self._adopt(unit)
                return
            self._decide_and_submit(unit)
        except NoRoom as error:
            self._without_room(unit, error, others=self.core.catalog.at_work or self.core.catalog.n_ended > ended)
        except NoWorker as error:
            self._without_worker(unit, error)
        except Exception as error:  # noqa: BLE001 - the action fails by name; the rest of the run goes on
            self._fail(unit, error)

    def _without_room(self, unit: Unit, error: NoRoom, *, others: bool) -> None:
        """Wait while anybody is at work, who gives room back when he is done. What waits holds nothing.

        It is decided anew when it is launched again: what lies where will have changed. Where nobody is at work, siblings
        go one after another, and a single agent by another road: the quickest that its policy allows and that has room.
        Without one it fails. ``others`` says whether anybody was at work who is not of this run.
        """
        unit.passed = True
        if not self._cancelled and (self._running or others):
            unit.decision = None
            self._postponed.append(unit)
        elif not self._cancelled and len(unit.nodes) > 1:
            for node in unit.nodes:
                alone = replace(unit, nodes=(node,), action="", decision=None, roads_without_room=[])
                self._launch(alone)
        elif not self._cancelled and (other := self._decider.by_another_road(unit)) is not None:
            unit.decision = other
            self._launch(unit)
        else:
            self._fail(unit, error)

    def _without_worker(self, unit: Unit, error: NoWorker) -> None:
        """Wait for one: :meth:`_wait_for_others` says when there is no hope."""
        if self._cancelled:
            self._fail(unit, error)
            return
        unit.passed, unit.decision = True, None
        self._postponed.append(unit)

    def _adopt(self, unit: Unit) -> None:
        """A prefix merge makes nothing: its state is its parent's, under its own name."""
        unit.action = unit.action or self._decider.name(unit)
        self._pass_gate(unit)
        node = unit.nodes[0]
        parent = self._parent(node)
        if parent is None:
            raise KVLabError(f"{node.id} has nothing to start from", hint="this is a bug in the compiled graph")
        speaker = node.parent or node.id
        self.progress.outputs[node.id] = self.progress.outputs.get(speaker, b"")
        record = self._at(node).operations.register(
            parent,
            (),
            operator="merge",
            name=node.id,
            run=self.run,
            namespace=self._namespace_of(node),
            parents=tuple(self.progress.states[name].id for name in node.waits_for if name in self.progress.states),
            unfed=parent.unfed,
            conversation=True,
        )
        self._settle(node, record)

    def _is_stopped(self, node: Node) -> bool:
        return node.unless is not None and node.unless.text in self.progress.texts[node.unless.agent]

    def _skip(self, node: Node) -> None:
        """The node does not run: it stands for the turn that it continues, with that one's state, output and text."""
        progress, unless = self.progress, node.unless
        if unless is None:
            raise KVLabError(f"{node.id} cannot be skipped", hint="please report this")
        progress.outputs[node.id] = progress.outputs[unless.instead]
        progress.texts[node.id] = progress.texts[unless.instead]
        progress.skipped[node.id] = f"{unless.agent} said {unless.text!r}"
        parent = self._parent(node) if self.flow == "state" else None
        self.core.hub.emit(
            Kind.ACTION_SKIPPED,
            self.run,
            action=f"{self._prefix}{node.id}",
            agent=node.id,
            state=parent.id if parent is not None else None,
            detail={"op": node.kind, "because": progress.skipped[node.id], "instead": unless.instead},
        )
        self._settle(node, parent)

    def _call(self, unit: Unit, tool: Call) -> None:
        """Call a tool. The states that wait for it are idle until then, and held, so that nothing evicts them."""
        unit.action = unit.action or self._decider.name(unit)
        self._pass_gate(unit)
        texts = [one if isinstance(one, str) else self.progress.texts[one.agent] for one in tool.given]
        waiting = [node.parent for node in self.graph.nodes if unit.name in node.data_parents]
        idle = [self.progress.states[parent] for parent in waiting if parent in self.progress.states]
        self._running[unit.action] = unit
        unit.call = ToolCall(
            self.core,
            self.run,
            unit.action,
            unit.name,
            tool,
            texts,
            idle,
            lambda: self._inbox.put(("tool", unit.action)),
        )

    def _returned(self, unit: Unit, call: ToolCall) -> None:
        """A tool's text is what an agent's answer is: ids, without control tokens."""
        try:
            text, ids = call.result()
        except Exception as error:  # noqa: BLE001 - the tool fails by name; the rest of the run goes on
            self._fail(unit, error)
            return
        self._retire(unit)
        self.progress.outputs[unit.name], self.progress.texts[unit.name] = ids, text
        self._settle(unit.nodes[0], None)

    def _op(self, node: Node) -> str:
        return node.kind if self.flow == "state" or node.tool is not None else "text"

    def _parent(self, node: Node) -> StateRecord | None:
        return self.progress.states[node.parent] if node.parent is not None else None

    def _branch(self, node: Node) -> Branch:
        pieces = node.full_pieces if self.flow == "text" else node.pieces
        tokenizer = self._at(node).core.tokenizer
        ids = resolve(pieces, self._outputs_for(node, pieces), tokenizer, self.progress.skipped)
        return Branch(ids, node.sampling, tokenizer.stop_ids)

    def _at(self, node: Node) -> Speaker:
        return self._speakers[node.model]

    def _namespace_of(self, node: Node) -> str:
        """Models share nothing: equal ids are different texts to them. A run's own name has no ``@``, an agent's no ``/``."""
        within = f"{self.namespace}@{node.namespace}" if node.namespace else self.namespace
        return f"{within}/{node.model}" if node.model else within

    def _outputs_for(self, node: Node, pieces: Sequence[Piece]) -> Mapping[str, bytes]:
        """What has been said, as the node's model reads it: what another one said is tokenized again."""
        said = self.progress.outputs
        others = {
            piece.agent
            for piece in flat(pieces)
            if isinstance(piece, OutputOf) and self.graph.by_id[piece.agent].model != node.model
        }
        read = self._at(node).core.tokenizer.text_ids
        return (
            {**said, **{name: read(self.progress.texts[name]) for name in others if name in said}} if others else said
        )

    def _decide_and_submit(self, unit: Unit) -> None:
        core = self.core
        unit.action = unit.action or self._decider.name(unit)
        # Decided after the gate: while an action waits there, workers come and go and states move.
        self._pass_gate(unit)
        branches = tuple(self._branch(node) for node in unit.nodes)
        parent = None if self.flow == "text" else self._parent(unit.nodes[0])
        if unit.decision is None:
            parts = self._decider.decide(unit, branches, parent)
            if parts[0] is not unit:
                for part in parts:
                    part.passed = part is parts[0]
                    self._launch(part)
                return
        decision = unit.decision
        if decision is None:
            raise KVLabError(f"{unit.name} was not decided", hint="please report this")
        unit.worker = decision.chosen.worker
        if self._decider.outside(unit.worker):
            text = f"none of this run's workers is up: {unit.name} runs on {unit.worker}"
            core.hub.emit(Kind.NOTE, self.run, agent=unit.name, detail={"text": text, "level": "warning"})
        self._running[unit.action] = unit
        try:
            self._submit(unit, decision, branches, parent)
        except BaseException:
            self._retire(unit)
            raise

    def _pass_gate(self, unit: Unit) -> None:
        if unit.passed and not self._cancelled:
            return
        # What was decided together with its siblings is decided again when it is let through on its own.
        if self.gate.closed:
            self._decider.forget(unit)
        self._waiting_unit = unit
        try:
            if self.gate.pass_through(unit.action, self._hear, unit.stops):
                self._decider.forget(unit)
        finally:
            self._waiting_unit = None
        unit.passed_ns = time.time_ns()

    def _send_ahead(self, unit: Unit) -> None:
        """Let the state of a unit that waits for texts travel already, where it will have to."""
        node = unit.nodes[0]
        if self.flow == "text" or unit.prefetched is not None or node.parent not in self.progress.states:
            return
        if node.unless is not None:  # it may not run at all
            return
        if self.gate.closed:  # a paused run sends nothing that nobody let through
            return
        unit.prefetched = self._decider.send_ahead(unit, self.progress.states[node.parent])
        if unit.prefetched is not None:
            text = f"the state of {node.parent} is sent ahead to {unit.prefetched.worker} for {unit.name}"
            self.core.hub.emit(Kind.NOTE, self.run, agent=unit.name, detail={"text": text, "level": "info"})

    def _submit(self, unit: Unit, decision: Decision, branches: tuple[Branch, ...], parent: StateRecord | None) -> None:
        """Set room aside, tell what was decided, and start; without room nothing is told, because nothing is done."""
        threads = self.core.threads_for(unit.worker)
        if self.flow == "text":
            self._submit_text(unit, decision, branches[0], threads)
            return
        request = Request(
            unit.action,
            self.run,
            self._namespace_of(unit.nodes[0]),
            parent,
            tuple(node.id for node in unit.nodes),
            branches,
            unit.worker,
            threads,
            decision.chosen,
            # What would only wait for a worker takes nobody's room: it may be used before that.
            evict=self._n_at_work() <= self.core.n_up,
        )
        operations = self._at(unit.nodes[0]).operations
        pending = operations.prepare(request)
        try:
            self._announce(unit, decision, parent, branches)
        except BaseException:
            operations.abandon(pending)
            raise
        operations.start(pending)
        unit.pending = pending
        for future in pending.answers:
            future.add_done_callback(lambda _, action=unit.action: self._inbox.put(("answer", action)))

    def _submit_text(self, unit: Unit, decision: Decision, branch: Branch, threads: int) -> None:
        core = self._at(unit.nodes[0]).core
        recipe = f"text-{unit.action}"
        n_tokens = n_ids(branch.ids) + max(0, branch.sampling.max_new_tokens - 1)
        with core.catalog.preparing:
            core.catalog.budget.reserve(
                recipe, n_tokens * core.config.bytes_per_token, f"action {unit.action}", device=unit.worker
            )
            core.catalog.begin(unit.action, ())
        self._announce(unit, decision, None, (branch,))
        order = Order(
            unit.action,
            self.run,
            "text",
            core.model,
            (unit.name,),
            (recipe,),
            (branch,),
            threads,
            core.chunk,
            core.beside,
        )
        unit.text_answer = core.client.submit(
            tasks.run_text,
            order,
            key=recipe,
            pure=False,
            resources=MODEL_WORK,
            workers=core.address_of(unit.worker),
            allow_other_workers=True,
        )
        unit.text_answer.add_done_callback(lambda _, action=unit.action: self._inbox.put(("answer", action)))

    def _announce(
        self, unit: Unit, decision: Decision, parent: StateRecord | None, branches: tuple[Branch, ...]
    ) -> None:
        for node in unit.nodes if not unit.tries else ():
            if node.id in self._refused:
                edge = self._refused[node.id]
                tell_refused(self.core.hub, self.run, edge, self.progress.states[edge.source], decision)
        if parent is not None and not unit.tries:
            for node in unit.nodes:
                tell_decision(self.core.hub, self.run, node.parent or "", node.id, decision)
            if self._audit:
                self._decided_units.append((unit, parent, branches))
        op = self._op(unit.nodes[0])
        self.core.hub.emit(
            Kind.ACTION_PLANNED,
            self.run,
            action=unit.action,
            agent=unit.name,
            worker=unit.worker,
            detail={"op": op, "subject": unit.name},
        )

    def _take_other_roads(self) -> None:
        """Measure every road of every edge now that all work is done; see :mod:`kvlab.runtime.auditing`."""
        numbers = itertools.count()
        auditors = {model: Auditor(speaker.core, numbers) for model, speaker in self._speakers.items()}
        for unit, parent, branches in self._decided_units:
            if self._cancelled or unit.decision is None:
                return
            audit = auditors[unit.nodes[0].model].audit(unit.decision, parent, branches)
            detail = {"roads": [asdict(road) for road in audit.roads], "regret": audit.regret}
            for edge in unit.edges:
                self.core.hub.emit(Kind.DECISION_AUDIT, self.run, edge=edge, agent=unit.name, detail=detail)

    # -- receiving

    def _hear(self) -> None:
        """Take in what has come so far, without waiting."""
        for _ in range(self._inbox.qsize()):
            self._receive(*self._inbox.get())

    def _receive(self, message: str, action: str | None) -> None:
        if message == "cancel":
            self._stop_running()
            return
        if message == "give up":
            for silent in list(self._running.values()):
                if silent.pending is not None:
                    self._at(silent.nodes[0]).operations.abandon(silent.pending)
                hint = "its worker did not answer; look whether it is alive"
                if silent.call is not None:
                    hint = "its function did not return, and is left alone"
                self._fail(silent, Cancelled(f"{silent.name} was cancelled", hint=hint))
            return
        unit = self._running.get(action or "")
        if unit is None:
            return
        if unit.call is not None:
            self._returned(unit, unit.call)
            return
        futures = [unit.text_answer] if self.flow == "text" else (unit.pending.answers if unit.pending else [])
        erred = next((future for future in futures if future.status in FAILED), None)
        if erred is not None:
            self._retry_or_fail(unit, erred)
        elif all(future.status == "finished" for future in futures):
            try:
                headers = fetched(self.core.client, futures, HOPE_SECONDS)
            except TimeoutError:  # who has them does not answer: ask again, and hear others meanwhile
                self._inbox.put((message, action))
                return
            self._finish(unit, headers)

    def _stop_running(self) -> None:
        for unit in self._running.values():
            if unit.call is not None:
                unit.call.end()
        ask_to_stop(self.core.client, list(self._running))

    def _retry_or_fail(self, unit: Unit, future: Any) -> None:
        error = error_of(future)
        if unit.pending is not None:
            self._at(unit.nodes[0]).operations.abandon(unit.pending)
        if isinstance(error, TransferFailed | ChecksumMismatch) and unit.tries < RETRIES and not self._cancelled:
            self._retire(unit)
            unit.tries += 1
            unit.trouble = error if unit.tries < RETRIES else None
            unit.because = error.message
            unit.planned = unit.planned or (unit.decision.chosen.how if unit.decision is not None else "")
            if unit.pending is not None:
                self._at(unit.nodes[0]).operations.distrust(unit.pending.request.path, unit.trouble)
            unit.pending, unit.decision, unit.action, unit.passed = None, None, "", False
            self.core.hub.emit(Kind.NOTE, self.run, agent=unit.name, detail={"text": str(error), "level": "warning"})
            self._again.append(unit)
            return
        self._fail(unit, error)

    def _fail(self, unit: Unit, trouble: Exception) -> None:
        error = as_error(trouble, f"{unit.name} could not be started")
        self._retire(unit)
        unit.forget_work()
        for node in unit.nodes:
            self.progress.failed[node.id] = error
            self.core.hub.emit(
                Kind.ACTION_FAILED,
                self.run,
                action=unit.action or f"{self.run}/{node.id}",
                agent=node.id,
                detail={"op": self._op(node), "error": str(error)},
            )
            self._node_done(node.id)

    def _retire(self, unit: Unit) -> None:
        self._running.pop(unit.action, None)
        self._at(unit.nodes[0]).planner.release(unit.action)
        if unit.call is not None:
            unit.call.end()
        if self.flow == "text":
            self.core.catalog.budget.release(f"text-{unit.action}")
            self.core.catalog.unclaim(unit.action, ())

    def _finish(self, unit: Unit, headers: list[dict[str, Any]]) -> None:
        self._retire(unit)
        now = time.time_ns()
        if self.flow == "text":
            self._finish_node(unit, unit.nodes[0], headers[0], None, now)
            unit.forget_work()
            return
        pending = unit.pending
        if pending is None:
            raise KVLabError(f"{unit.name} ended without having begun", hint="please report this")
        remade = headers[len(pending.recipes) :]
        operations = self._at(unit.nodes[0]).operations
        answers = operations.collect(pending, headers)
        for node, answer in zip(unit.nodes, answers, strict=True):
            self._finish_node(unit, node, answer.header, answer, now, remade)
        if pending.request.parent is not None:
            self.core.catalog.settle(pending.request.parent.id)
        operations.done_with(pending)
        unit.forget_work()

    def _finish_node(
        self,
        unit: Unit,
        node: Node,
        header: dict[str, Any],
        answer: Answered | None,
        now: int,
        remade: list[dict[str, Any]] | None = None,
    ) -> None:
        core = self._at(node).core
        self.progress.outputs[node.id] = header["generated"]
        parent = self._parent(node) if self.flow == "state" else None
        record = None
        if answer is not None:
            record = self._at(node).operations.register(
                parent,
                (answer.segment,),
                operator="materialize" if node.kind == "materialize" else "merge" if node.kind == "merge" else "resume",
                name=node.id,
                run=self.run,
                namespace=self._namespace_of(node),
                unfed=answer.unfed,
                conversation=node.kind != "materialize",
            )
        turn, actual = turn_of(
            node=unit.nodes[0].id,
            texts_ready_ns=self._without_holding(self._texts_ready(node, unit), unit),
            states_ready_ns=self._without_holding(unit.ready_ns, unit),
            own=self._own_states(node),
            header=header,
            now_ns=now,
            parent=parent,
            text=core.tokenizer.decode(header["generated"]),
            timeline=self._timeline,
            before=self._before(unit),
            remade=remade or [],
            made=unit.pending.made if unit.pending is not None else {},
        )
        core.hub.emit(
            Kind.TURN_FINISHED,
            self.run,
            agent=node.id,
            state=record.id if record is not None else None,
            worker=turn["worker"],
            n_tokens=turn["n_prefilled"],
            seconds=turn["ttft_seconds"],
            detail=turn,
        )
        if node.id in self._refused:
            core.hub.emit(
                Kind.DECISION_ACTUAL,
                self.run,
                edge=edge_id(self._refused[node.id].source, node.id),
                agent=node.id,
                seconds=sum(actual["terms"].values()),
                detail={**actual, "how": "recompute", "nbytes": 0, "because": None},
            )
        if parent is not None:
            planned = unit.planned or (unit.decision.chosen.how if unit.decision is not None else "")
            core.hub.emit(
                Kind.DECISION_ACTUAL,
                self.run,
                edge=edge_id(node.parent, node.id),
                agent=node.id,
                seconds=sum(actual["terms"].values()),
                detail={**actual, "because": because(planned, unit.worker, actual, unit.because)},
            )
            if unit.decision is not None and node is unit.nodes[0]:
                self._at(node).planner.learn(unit.decision, actual)
        self.progress.texts[node.id] = turn["text"]
        self._settle(node, record)

    def _before(self, unit: Unit) -> dict[str, bool]:
        """What lay on the unit's worker before anything was done for it; what was sent ahead did not."""
        before = dict(unit.pending.before) if unit.pending is not None else {}
        sent = unit.prefetched.recipes if unit.prefetched is not None else ()
        return before | dict.fromkeys(before.keys() & set(sent), False)

    def _texts_ready(self, node: Node, unit: Unit) -> int:
        """When all of the agent's texts were there: states still to be made for it are on its path."""
        if self.flow == "text" or node.kind == "materialize":
            return unit.ready_ns
        texts = [self.progress.done_ns[name] for name in node.text_parents if name in self.progress.done_ns]
        return max([self._start_ns, *texts])

    def _without_holding(self, ready_ns: int, unit: Unit) -> int:
        """``ready_ns``, moved towards the launch by the time for which a person held the run since then."""
        return ready_ns + self.gate.held_ns(ready_ns, unit.passed_ns) if unit.passed_ns else ready_ns

    def _own_states(self, node: Node) -> frozenset[str]:
        """Shared states that were made for this node or before it: their making is never its queue."""
        own: set[str] = set()
        while node.parent is not None and self.graph.by_id[node.parent].kind == "materialize":
            node = self.graph.by_id[node.parent]
            own.add(node.id)
        return frozenset(own)

    def _settle(self, node: Node, record: StateRecord | None) -> None:
        if record is not None:
            self.progress.states[node.id] = record
        # The handle first: whoever sees that the node is done may ask for its state at once.
        self._node_done(node.id)
        self.progress.done_ns[node.id] = time.time_ns()
        self._node_done(node.id)
