"""Events to append-only rows: what a browser needs to show a run at any of its moments.

Each table only grows and is sorted by ``born``, the number of the event that made the row; a moment ``k`` is the rows
with ``born <= k``. Nothing is changed later: a state that is evicted gets a second, hollow mark, and an edge that was not
carried out as decided gets a second line. Every figure is the store's own (:class:`kvlab.store.fold.World`).

One file a little over the usual length, because it is one table of events and what each of them adds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kvlab.cost.roads import roads_for
from kvlab.cost.seen import world_of
from kvlab.display.decision_quality import lost_edges, miss_of, reused_tokens
from kvlab.display.drawing import alternatives_of
from kvlab.display.inequality import inequalities, inequality_formula
from kvlab.display.look import DASHES, shape_of
from kvlab.display.sentences import sentence
from kvlab.state.lifecycle import Phase
from kvlab.store.events import Event, Kind
from kvlab.store.fold import World
from kvlab_widgets.layout import Layout, Place

KINDS = tuple(str(kind) for kind in Kind)
DECISIONS = tuple(DASHES)
"""Code of a decision → its name; an unknown one has the code after the last."""

PHASES = tuple(str(phase) for phase in Phase)
"""Code of a phase of a state's life → its name."""

SHAPES = ("materialize", "fork", "resume", "merge", "tool")
SOLID, HOLLOW, APPROXIMATE = 0, 1, 2
"""How a state's mark is filled."""

COMPUTED, RECEIVED, MAPPED = "computed", "received", "mapped"
TABLES: dict[str, tuple[str, ...]] = {
    "events": ("kind", "t", "agent", "text"),
    "plan": ("born", "x", "y", "shape"),
    "planned_lines": ("born", "x0", "y0", "x1", "y1", "state"),
    "nodes": ("born", "x", "y", "shape", "worker", "tokens", "own", "bytes", "parents", "id", "name", "operator", "exact",
              "preview", "segments"),
    "phases": ("born", "node", "phase"),
    "marks": ("born", "node", "x", "y", "shape", "fill"),
    "data": ("born", "x0", "y0", "x1", "y1", "source", "target"),
    "edges": ("born", "x0", "y0", "x1", "y1", "how", "bytes", "decision"),
    "decisions": ("born", "edge", "source", "target", "x1", "y1", "tokens", "chosen", "worker", "reason", "policy",
                  "predicted", "bytes", "alternatives", "inequality", "seen"),
    "actuals": ("born", "decision", "how", "worker", "seconds", "predicted", "bytes", "terms", "because", "inequality",
                "kept", "reused", "miss"),
    "audits": ("born", "decision", "roads", "regret", "inequality"),
    "starts": ("born", "worker", "t0", "op", "agent"),
    "spans": ("born", "start", "worker", "t0", "t1", "how", "op", "agent", "seconds"),
    "decodes": ("born", "worker", "t0", "t1"),
    "moves": ("born", "segment", "source", "worker", "t0", "t1", "bytes", "how"),
    "drops": ("born", "worker", "t"),
    "memory": ("born", "t", "worker", "computed", "received", "mapped", "measured", "process"),
    "placements": ("born", "segment", "worker", "there"),
}  # fmt: skip
"""Table → its columns. ``y`` is a lane's number below zero; workers, agents and segments are numbers in a list.

A decision's ``alternatives`` are empty where they are what ``decide`` says of what it saw: the browser decides once more.
A span of work that turned out to be another road than was decided gets a second row with the same ``start``.
"""


class RunRows:
    """Folds events and collects the rows they make.

    Attributes
    ----------
    world
        The store's fold of the same events.
    n_events
        Events folded so far.
    """

    def __init__(self) -> None:
        self.world = World.empty()
        self.layout = Layout()
        self._new: dict[str, dict[str, list[Any]]] = {}
        self._count = dict.fromkeys(TABLES, 0)
        self._lists: dict[str, dict[str, int]] = {
            "lanes": self.layout.lanes,
            "workers": {},
            "agents": {},
            "segments": {},
        }
        self._told: dict[str, int] = {}
        self._lane_of: dict[str, str] = {}
        self._node_rows: dict[str, int] = {}
        self._decision_rows: dict[str, int] = {}
        self._edge_to: dict[str, str] = {}
        self._spans: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, tuple[int, float, float]] = {}
        self._decoded: dict[str, float] = {}
        self._sent: dict[str, str] = {}
        self._done: dict[str, dict[str, Any]] = {}
        self._held: dict[str, dict[str, Any]] = {}
        self._texts: dict[str, list[str]] = {}
        self._drawn: set[tuple[str, str]] = set()
        self._time = 0.0
        self._said_run: tuple[Any, ...] | None = None

    @property
    def n_events(self) -> int:
        """Events folded so far."""
        return self.world.n_events

    def feed(self, events: Iterable[Event]) -> None:
        """Fold ``events`` in, in the order of the log. Their rows wait for :meth:`take`."""
        for event in events:
            leaving = self._leaving(event)
            self.world.apply(event)
            seq = self.world.n_events
            at = self._seconds(event.time_ns)
            # Clocks of sources differ a little; what is drawn over time only goes forward.
            self._time = max(self._time, at)
            handler = _HANDLERS.get(event.kind)
            if handler is not None:
                handler(self, seq, event)
            for worker in leaving if event.kind is Kind.WORKER_LOST else ():
                self._memory(seq, worker)
            agent = self._number("agents", event.agent) if event.agent is not None else -1
            self._add("events", kind=KINDS.index(event.kind), t=at, agent=agent, text=sentence(event))

    def take(self) -> dict[str, Any]:
        """What was added since the last call: tables, names that are new, and how far it goes. Forgets it."""
        batch: dict[str, Any] = {"to": self.n_events, "from": self._told.get("events", 0)}
        self._told["events"] = self.n_events
        batch["tables"], self._new = self._new, {}
        for name, known in self._lists.items():
            if len(known) != self._told.get(name, 0):
                batch[name] = list(known)[self._told.get(name, 0) :]
                self._told[name] = len(known)
        run = self.world.run
        said = (self.world.status, self.world.name, self.world.flow)
        if said != self._said_run:
            self._said_run = said
            batch["run"] = {"status": said[0], "name": said[1], "flow": said[2], "seconds": self.world.wall_seconds,
                            "error": run.get("error"), "policy": run.get("policy"), "stepped": bool(run.get("stepped")),
                            "lost": [edge["n_tokens"] for edge in lost_edges(self.world)]}  # fmt: skip
        return batch

    # -- rows

    def _add(self, table: str, **values: Any) -> int:
        rows = self._new.setdefault(table, {name: [] for name in TABLES[table]})
        for name, column in rows.items():
            column.append(values[name])
        self._count[table] += 1
        return self._count[table] - 1

    def _number(self, kind: str, name: str | None) -> int:
        known = self._lists[kind]
        return known.setdefault(name or "?", len(known))

    def _place(self, name: str, agent: str | None, sources: Iterable[str] = (), *, forked: bool = False) -> Place:
        lane = self._lane_of.get(name) or self._lane_of.get(agent or "") or agent or name
        above = next((self.layout.places[source].lane for source in sources if source in self.layout.places), None)
        if above is not None and agent is not None and agent.partition("/")[0] == "":
            # A state that nobody named goes on in the lane of what it was made from; a fork leaves it.
            lane = list(self.layout.lanes)[above] + (agent[agent.rfind("/") :] if forked else "")
        return self.layout.place(name, lane, sources)

    # -- the graph

    def _run_started(self, seq: int, event: Event) -> None:
        document = event.detail.get("graph")
        if not isinstance(document, Mapping) or not document.get("nodes"):
            return
        if event.detail.get("flow") == "text":
            document = _as_text(document)
        self._lane_of = {node["id"]: node["lane"] for node in document["nodes"]}
        self.layout.place_graph(document)
        for node in document["nodes"]:
            x, lane = self.layout.places[node["id"]]
            self._add("plan", born=seq, x=x, y=-lane, shape=SHAPES.index(shape_of(node["kind"])))
        for kind in ("state_edges", "data_edges"):
            for edge in document[kind]:
                line = self._line(edge["source"], edge["target"])
                self._add("planned_lines", born=seq, **line, state=int(kind == "state_edges"))
        for edge in document["data_edges"]:
            self._texts.setdefault(edge["target"], []).append(edge["source"])

    def _line(self, source: str, target: str) -> dict[str, int]:
        one, other = self.layout.places[source], self.layout.places[target]
        return {"x0": one.x, "y0": -one.lane, "x1": other.x, "y1": -other.lane}

    def _state_created(self, seq: int, event: Event) -> None:
        row = self.world.find("states", event.state) or {}
        parents = [str(name) for name in row.get("parents") or ()]
        agent = str(event.agent or event.state)
        key = agent if agent in self._lane_of and agent not in self._node_rows else str(event.state)
        place = self._place(key, event.agent or "", parents, forked=row.get("operator") == "fork")
        self.layout.places.setdefault(str(event.state), place)
        segments = [self._number("segments", name) for name in row.get("segments") or ()]
        last = self.world.find("segments", (row.get("segments") or [None])[-1]) or {}
        worker = last.get("worker") or (self.world.find("agents", agent) or {}).get("worker")
        below = [self.world.find("states", name) or {} for name in parents]
        n_tokens = row.get("n_tokens") or 0
        own = max(0, n_tokens - max((parent.get("n_tokens") or 0 for parent in below), default=0))
        self._node(
            seq, (str(event.state), key, agent), place, worker=worker, tokens=n_tokens, own=own, parents=parents, row=row,
            segments=segments,
        )  # fmt: skip

    def _node(
        self,
        seq: int,
        names: tuple[str, ...],
        place: Place,
        *,
        worker: str | None,
        tokens: int,
        own: int,
        parents: list[str],
        row: Mapping[str, Any],
        segments: list[int],
    ) -> None:
        at = {"x": place.x, "y": -place.lane, "shape": SHAPES.index(shape_of(row.get("operator")))}
        node = self._add(
            "nodes", born=seq, **at, worker=self._number("workers", worker) if worker else -1, tokens=tokens, own=own,
            bytes=row.get("nbytes"), parents=[self._node_rows[p] for p in parents if p in self._node_rows],
            id=names[0], name=row.get("name") or names[-1], operator=row.get("operator") or "",
            exact=int(row.get("exact", True) is not False), preview=row.get("preview") or "", segments=segments,
        )  # fmt: skip
        for name in names:
            self._node_rows[name] = node
        self._add(
            "marks", born=seq, node=node, **at, fill=SOLID if row.get("exact", True) is not False else APPROXIMATE
        )
        if row.get("phase"):
            self._add("phases", born=seq, node=node, phase=PHASES.index(row["phase"]))

    def _state_phase(self, seq: int, event: Event) -> None:
        node = self._node_rows.get(str(event.state))
        then, now = event.detail.get("then"), event.detail.get("now")
        if node is None:
            return
        self._add("phases", born=seq, node=node, phase=PHASES.index(str(then)))
        if then != "evicted" and (then != "resident" or now != "materialized"):
            return
        row = self.world.find("states", event.state) or {}
        place = self.layout.places[str(event.state)]
        exact = row.get("exact", True) is not False
        fill = HOLLOW if then == "evicted" else SOLID if exact else APPROXIMATE
        shape = SHAPES.index(shape_of(row.get("operator")))
        self._add("marks", born=seq, node=node, x=place.x, y=-place.lane, shape=shape, fill=fill)

    def _texts_read(self, seq: int, agent: str) -> None:
        for source in self._texts.get(agent, ()):
            if (source, agent) not in self._drawn:
                self._drawn.add((source, agent))
                self._add("data", born=seq, **self._line(source, agent), source=source, target=agent)

    def _turn_finished(self, seq: int, event: Event) -> None:
        self._decoded[str(event.agent)] = event.detail.get("decode_seconds") or 0.0
        self._decoding(seq, str(event.agent))
        if event.state is not None or event.agent is None:
            return
        turn = self.world.find("turns", event.agent) or {}
        place = self._place(event.agent, event.agent, self._texts.get(event.agent, ()))
        n_prompt, made = turn.get("prompt_tokens") or 0, turn.get("n_generated") or 0
        text = {"operator": "resume", "name": event.agent, "preview": turn.get("text")}
        self._node(
            seq, (event.agent,), place, worker=turn.get("worker"), tokens=n_prompt + made,
            own=(turn.get("n_prefilled") or 0) + made, parents=[], row=text, segments=[],
        )  # fmt: skip

    # -- decisions

    def _decision(self, seq: int, event: Event) -> None:
        row = self.world.find("edges", event.edge) or {}
        source, target = str(row["source"]), str(row["target"])
        if source not in self.layout.places:
            self._place(source, source)
        self._place(target, event.agent, [source])
        line = self._line(source, target)
        self._texts_read(seq, target)
        told = inequalities(row)
        decision = self._add(
            "decisions", born=seq, edge=event.edge, source=source, target=target, x1=line["x1"], y1=line["y1"],
            tokens=row["n_tokens"] or 0, chosen=_code(row["chosen"]), worker=self._number("workers", row["worker"]),
            reason=row["reason"] or "", policy=row["policy"] or "", predicted=row["predicted_seconds"],
            bytes=row["nbytes"] or 0, alternatives=self._alternatives(event.detail.get("seen"), alternatives_of(row)),
            inequality=f"{inequality_formula(row)}\n{told[0]}" if told else "", seen=_seen(event),
        )  # fmt: skip
        self._decision_rows[str(event.edge)], self._edge_to[target] = decision, str(event.edge)
        if event.action is not None:
            self._edge_to[event.action] = str(event.edge)
        self._add("edges", born=seq, **line, how=_code(row["chosen"]), bytes=row["nbytes"] or 0, decision=decision)

    def _alternatives(self, seen: Mapping[str, Any] | None, told: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        return [] if seen and _follow(seen, told) else [self._alternative(one) for one in told]

    def _alternative(self, told: Mapping[str, Any]) -> list[Any]:
        return [
            _code(told.get("how")), self._number("workers", told.get("worker")), told.get("seconds"),
            told.get("terms") or {}, told.get("nbytes") or 0, told.get("missing_tokens"), told.get("excluded"),
        ]  # fmt: skip

    def _decision_actual(self, seq: int, event: Event) -> None:
        row, decision = self.world.find("edges", event.edge) or {}, self._decision_rows.get(str(event.edge))
        if decision is None:
            return
        told = inequalities(row)
        how, kept = _code(row["actual_how"]), row["actual_how"] == row["chosen"]
        self._add(
            "actuals", born=seq, decision=decision, how=how, worker=self._number("workers", row["actual_worker"]),
            seconds=row["actual_seconds"], predicted=row["predicted_seconds"], bytes=row["actual_nbytes"] or 0,
            terms=json.loads(row["actual_terms"] or "{}"), because=row["because"] or "",
            inequality=told[1] if len(told) > 1 else "", kept=int(kept),
            reused=reused_tokens(self.world, row), miss=miss_of(row) or "",
        )  # fmt: skip
        if not kept:
            line = self._line(str(row["source"]), str(row["target"]))
            nbytes = row["actual_nbytes"] or 0
            self._add("edges", born=seq, **line, how=len(DECISIONS) + 1, bytes=nbytes, decision=decision)
            self._add("edges", born=seq, **line, how=how, bytes=nbytes, decision=decision)
            if (span := self._done.get(str(event.edge))) is not None:
                self._add("spans", **{**span, "born": seq, "how": how})

    def _decision_audit(self, seq: int, event: Event) -> None:
        decision = self._decision_rows.get(str(event.edge))
        if decision is None:
            return
        roads = [
            [_code(road["how"]), self._number("workers", road["worker"]), road["seconds"], road.get("because")]
            for road in event.detail.get("roads") or ()
        ]
        told = inequalities(self.world.find("edges", event.edge) or {})
        self._add(
            "audits", born=seq, decision=decision, roads=roads, regret=event.detail.get("regret"),
            inequality=told[1] if len(told) > 1 else "",
        )  # fmt: skip

    # -- work

    def _action_started(self, seq: int, event: Event) -> None:
        started = {
            "worker": self._number("workers", event.worker), "t0": self._seconds(event.time_ns),
            "op": event.detail.get("op") or "", "agent": event.agent or "",
        }  # fmt: skip
        start = self._add("starts", born=seq, **started)
        self._spans[str(event.action)] = {"start": start, **started}
        for agent in (event.agent or "").split(", "):
            self._ended.pop(agent, None)  # what was prefilled for it before decodes nothing
            self._texts_read(seq, agent)

    def _action_ended(self, seq: int, event: Event) -> None:
        started = self._spans.pop(str(event.action), None)
        if started is None:
            return
        if started["op"] == "tool" and event.kind is Kind.ACTION_FINISHED:
            self._tool_returned(seq, event)
        first = next(
            (name for name in (event.action, str(started["agent"]).split(", ", 1)[0]) if name in self._edge_to), ""
        )
        decision = self._decision_rows.get(self._edge_to.get(first, ""))
        how = len(DECISIONS)
        if decision is not None:
            row = self.world.find("edges", self._edge_to[first]) or {}
            how = _code(row.get("actual_how") or row.get("chosen"))
        ended = self._seconds(event.time_ns)
        span = {"born": seq, **started, "t1": ended, "how": how, "seconds": event.seconds}
        self._add("spans", **span)
        if decision is not None:
            self._done[self._edge_to[first]] = span
        agents = str(started["agent"]).split(", ")
        for agent in agents:
            self._ended[agent] = (started["worker"], started["t0"], ended)
        self._decoding(seq, first if first in agents else agents[0])

    def _tool_returned(self, seq: int, event: Event) -> None:
        """A tool has no state: its mark stands for its text."""
        name = str(event.agent)
        text = {"operator": "tool", "name": name, "preview": event.detail.get("text")}
        self._node(
            seq, (name,), self._place(name, name, self._texts.get(name, ())), worker=event.worker,
            tokens=event.n_tokens or 0, own=0, parents=[], row=text, segments=[],
        )  # fmt: skip

    def _decoding(self, seq: int, agent: str) -> None:
        """The end of an agent's work is decoding. Of its turn and its work either may be told first."""
        if agent in self._ended and self._decoded.get(agent):
            worker, started, ended = self._ended.pop(agent)
            self._add("decodes", born=seq, worker=worker, t0=max(started, ended - self._decoded.pop(agent)), t1=ended)

    def _segment_sent(self, _seq: int, event: Event) -> None:
        self._sent[str(event.segment)] = str(event.worker)

    def _segment_received(self, seq: int, event: Event) -> None:
        ended = self._seconds(event.time_ns)
        how = "map" if event.detail.get("how") == "map" else "transfer"
        worker = self._number("workers", event.worker)
        holders = [name for name in self.world.held.get(str(event.segment), {}) if name != event.worker]
        sender = event.detail.get("from") or self._sent.get(str(event.segment)) or next(iter(holders), None)
        # A sender that is no worker of this run (a file, another process) has no row to come from.
        source = self._lists["workers"].get(str(sender), worker)
        self._add(
            "moves", born=seq, segment=self._number("segments", event.segment), t0=ended - (event.seconds or 0.0), t1=ended,
            source=source, worker=worker, bytes=event.nbytes or 0, how=DECISIONS.index(how),
        )  # fmt: skip

    def _seconds(self, time_ns: int) -> float:
        return float(time_ns - self.world.run.get("started_ns", time_ns)) / 1e9

    # -- memory

    def _leaving(self, event: Event) -> list[str]:
        """What the event takes away, read before it is folded: counts it out, and names the workers concerned."""
        if event.kind is Kind.SEGMENT_DROPPED:
            row = self.world.held.get(str(event.segment), {}).get(str(event.worker))
            rows = [row] if row is not None else []
        elif event.kind is Kind.WORKER_LOST:
            rows = [
                row for copies in self.world.held.values() for row in copies.values() if row["worker"] == event.worker
            ]
        else:
            return []
        if event.kind is Kind.WORKER_LOST:
            self._held_by(str(event.worker)).update(measured=None, process=None)
        for row in rows:
            self._tally(self._held[row["worker"]], row, -1)
            self._add(
                "placements", born=self.world.n_events + 1, segment=self._number("segments", row["segment"]),
                worker=self._number("workers", row["worker"]), there=0,
            )  # fmt: skip
        return [str(event.worker)] if rows or event.kind is Kind.WORKER_LOST else []

    def _segment_placed(self, seq: int, event: Event) -> None:
        row = self.world.held.get(str(event.segment), {}).get(str(event.worker))
        if row is None or row["seq"] != seq:
            return
        self._tally(self._held_by(str(event.worker)), row, 1)
        worker = self._number("workers", event.worker)
        self._add("placements", born=seq, segment=self._number("segments", event.segment), worker=worker, there=1)
        self._memory(seq, str(event.worker))

    def _segment_dropped(self, seq: int, event: Event) -> None:
        self._add("drops", born=seq, worker=self._number("workers", event.worker), t=self._seconds(event.time_ns))
        self._memory(seq, str(event.worker))

    def _worker_joined(self, seq: int, event: Event) -> None:
        self._memory(seq, str(event.worker))

    def _sampled(self, seq: int, event: Event) -> None:
        held = self._held_by(str(event.worker))
        held["measured"], held["process"] = event.nbytes or 0, event.detail.get("pss_bytes")
        self._memory(seq, str(event.worker))

    @staticmethod
    def _tally(held: dict[str, Any], row: Mapping[str, Any], sign: int) -> None:
        came, here = row["received_bytes"], (row["nbytes"] or 0) - row["received_bytes"]
        held[RECEIVED] += sign * came
        held[MAPPED if row["how"] == "map" else COMPUTED] += sign * here

    def _held_by(self, worker: str) -> dict[str, Any]:
        return self._held.setdefault(worker, {COMPUTED: 0, RECEIVED: 0, MAPPED: 0, "measured": None, "process": None})

    def _memory(self, seq: int, worker: str) -> None:
        self._add("memory", born=seq, t=self._time, worker=self._number("workers", worker), **self._held_by(worker))


def _code(how: Any) -> int:
    return DECISIONS.index(how) if how in DECISIONS else len(DECISIONS)


def _follow(seen: Mapping[str, Any], told: Sequence[Mapping[str, Any]]) -> bool:
    """Whether ``told`` is what ``decide`` says of the world that was seen, with nothing that only the lab knew."""
    found = roads_for(*world_of(seen))
    return len(found) == len(told) and all(
        one.excluded is None
        and (one.how, one.worker, one.nbytes, one.missing_tokens, None)
        == (
            other.get("how"),
            other.get("worker"),
            other.get("nbytes"),
            other.get("missing_tokens"),
            other.get("excluded"),
        )
        and dict(one.terms) == other.get("terms")
        for one, other in zip(found, told, strict=True)
    )


def _seen(event: Event) -> str:
    """What the decision saw, as JSON: a text, since numbers on their way are rounded and these are decided with."""
    seen = event.detail.get("seen")
    return json.dumps(seen, separators=(",", ":"), ensure_ascii=False) if seen else ""


def _as_text(document: Mapping[str, Any]) -> dict[str, Any]:
    """The graph as textflow runs it: only agents and tools that say something, and texts between them."""
    speaking = {node["id"] for node in document["nodes"] if node.get("max_new_tokens") or node["kind"] == "tool"}
    above = {edge["target"]: edge["source"] for edge in document["state_edges"]}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for edge in (*document["state_edges"], *document["data_edges"]):
        source: str | None = edge["source"]
        while source is not None and source not in speaking:
            source = above.get(source)
        if source is not None and edge["target"] in speaking:
            found[source, edge["target"]] = {"source": source, "target": edge["target"]}
    nodes = [node for node in document["nodes"] if node["id"] in speaking]
    return {"nodes": nodes, "state_edges": [], "data_edges": list(found.values())}


_HANDLERS: dict[Kind, Callable[[RunRows, int, Event], None]] = {
    Kind.WORKER_JOINED: RunRows._worker_joined,  # noqa: SLF001
    Kind.RUN_STARTED: RunRows._run_started,  # noqa: SLF001
    Kind.STATE_CREATED: RunRows._state_created,  # noqa: SLF001
    Kind.STATE_PHASE: RunRows._state_phase,  # noqa: SLF001
    Kind.TURN_FINISHED: RunRows._turn_finished,  # noqa: SLF001
    Kind.DECISION: RunRows._decision,  # noqa: SLF001
    Kind.DECISION_ACTUAL: RunRows._decision_actual,  # noqa: SLF001
    Kind.DECISION_AUDIT: RunRows._decision_audit,  # noqa: SLF001
    Kind.ACTION_STARTED: RunRows._action_started,  # noqa: SLF001
    Kind.ACTION_FINISHED: RunRows._action_ended,  # noqa: SLF001
    Kind.ACTION_FAILED: RunRows._action_ended,  # noqa: SLF001
    Kind.SEGMENT_PLACED: RunRows._segment_placed,  # noqa: SLF001
    Kind.SEGMENT_SENT: RunRows._segment_sent,  # noqa: SLF001
    Kind.SEGMENT_RECEIVED: RunRows._segment_received,  # noqa: SLF001
    Kind.SEGMENT_DROPPED: RunRows._segment_dropped,  # noqa: SLF001
    Kind.MEMORY: RunRows._sampled,  # noqa: SLF001
}
