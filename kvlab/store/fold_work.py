"""How events about the run, its agents, operators, states and decisions change the world."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvlab.store.events import Event, Kind

if TYPE_CHECKING:
    from kvlab.store.fold import World

BATCH = ", "
"""Between the names of siblings that run as one batch."""

_TURN = ("n_prefilled", "n_reused", "n_generated", "ttft_seconds", "queue_seconds", "prefill_seconds", "decode_seconds")
_TURN_REST = ("overhead_seconds", "finish", "token_ids", "text", "prompt_tokens")


def run_started(world: World, _seq: int, event: Event) -> None:
    """The run has begun."""
    world.run = {**event.detail, "started_ns": event.time_ns}


def run_finished(world: World, _seq: int, event: Event) -> None:
    """The run is over, well or not."""
    world.run = {**world.run, **event.detail, "finished_ns": event.time_ns}


def action_planned(world: World, seq: int, event: Event) -> None:
    """An operator will run."""
    row = _operator(world, seq, event)
    row.update(status="planned", planned_ns=event.time_ns)
    _agents(world, seq, event)


def action_started(world: World, seq: int, event: Event) -> None:
    """An operator runs."""
    row = _operator(world, seq, event)
    row.update(status="running", started_ns=event.time_ns, threads=event.detail.get("threads"))
    for agent in _agents(world, seq, event):
        agent["status"] = "running"
        if not agent["n_turns"]:
            agent["n_generated"] = 0


def action_finished(world: World, seq: int, event: Event) -> None:
    """An operator is done."""
    row = _operator(world, seq, event)
    row.update(status="done", finished_ns=event.time_ns, seconds=event.seconds)
    for agent in _agents(world, seq, event):
        if agent["status"] == "running":
            agent["status"] = "done"


def action_failed(world: World, seq: int, event: Event) -> None:
    """An operator failed."""
    error = str(event.detail.get("error"))
    _operator(world, seq, event).update(status="failed", finished_ns=event.time_ns, error=error)
    for agent in _agents(world, seq, event):
        agent.update(status="failed", error=error)


def action_skipped(world: World, seq: int, event: Event) -> None:
    """An operator will not run: its stop condition held."""
    _operator(world, seq, event).update(status="skipped", subject=event.agent, error=event.detail.get("because"))
    for agent in _agents(world, seq, event):
        agent.update(status="skipped", state=event.state, error=event.detail.get("because"))


def state_created(world: World, seq: int, event: Event) -> None:
    """A state exists."""
    told = {key: event.detail.get(key) for key in ("name", "operator", "note", "preview")}
    row = world.find("states", event.state)
    if row is None or row["operator"] is not None:
        row = world.add_row("states", event.state, seq, event, phase="materialized", phase_seq=seq)
    row.update(
        state=event.state,
        agent=event.agent,
        parents=list(event.detail.get("parents") or ()),
        segments=list(event.detail.get("segments") or ()),
        n_tokens=event.n_tokens,
        nbytes=event.nbytes,
        exact=event.detail.get("exact", True),
        **told,
    )
    for agent in _agents(world, seq, event):
        agent["state"] = event.state


def state_phase(world: World, seq: int, event: Event) -> None:
    """A state goes on in its life. One that is only planned has a row before it is created."""
    row = world.find("states", event.state) or world.add_row("states", event.state, seq, event, state=event.state)
    row.update(phase=event.detail.get("then"), phase_seq=seq)


def decision(world: World, seq: int, event: Event) -> None:
    """It was decided how a state edge is served."""
    told = {key: event.detail.get(key) for key in ("source", "target", "chosen", "worker", "reason", "policy")}
    alternatives = list(event.detail.get("alternatives") or ())
    chosen = _chosen(alternatives, told["chosen"], told["worker"])
    world.add_row(
        "edges",
        event.edge,
        seq,
        event,
        edge=event.edge,
        agent=event.agent,
        n_tokens=event.detail.get("n_tokens", event.n_tokens),
        nbytes=chosen.get("nbytes"),
        predicted_seconds=chosen.get("seconds"),
        alternatives=json.dumps(alternatives),
        **told,
    )


def decision_actual(world: World, seq: int, event: Event) -> None:
    """It is known what was done for a state edge, and what it cost."""
    row = world.find("edges", event.edge)
    if row is None:
        row = world.add_row("edges", event.edge, seq, event, edge=event.edge, agent=event.agent)
    row.update(
        actual_how=event.detail.get("how"),
        actual_worker=event.detail.get("worker"),
        actual_seconds=event.seconds,
        actual_nbytes=event.detail.get("nbytes"),
        actual_terms=json.dumps(event.detail.get("terms") or {}),
        because=event.detail.get("because"),
        actual_seq=seq,
    )


def decision_audit(world: World, seq: int, event: Event) -> None:  # noqa: ARG001 - as every handler
    """The roads not taken were taken, to be measured."""
    row = world.find("edges", event.edge)
    if row is not None:
        row.update(audit=json.dumps(event.detail.get("roads") or []), regret=event.detail.get("regret"))


def prefill_chunk(world: World, seq: int, event: Event) -> None:
    """Some more of a prompt has K/V."""
    for agent in _agents(world, seq, event):
        agent.update(n_prefill_done=event.n_tokens, n_prefill_total=event.detail.get("total"))


def tokens(world: World, seq: int, event: Event) -> None:
    """Some more tokens were sampled. A worker's word of them may come later than that of the finished turn."""
    for agent in _agents(world, seq, event):
        if not agent["n_turns"]:
            agent["n_generated"] += event.n_tokens or 0


def turn_finished(world: World, seq: int, event: Event) -> None:
    """An agent has answered."""
    detail = event.detail
    told = {key: detail.get(key) for key in (*_TURN, *_TURN_REST)}
    worker = detail.get("worker") or event.worker
    world.add_row("turns", event.agent, seq, event, agent=event.agent, state=event.state, worker=worker, **told)
    for agent in _agents(world, seq, event):
        earlier = agent["n_generated"] if agent["n_turns"] else 0
        generated = earlier + (detail.get("n_generated") or 0)
        agent.update(status="done", worker=worker, n_turns=agent["n_turns"] + 1, n_generated=generated)


def note(world: World, seq: int, event: Event) -> None:
    """A remark."""
    text, level = event.detail.get("text"), event.detail.get("level", "info")
    world.add_row("notes", seq, seq, event, level=level, text=text, agent=event.agent)


def _agents(world: World, seq: int, event: Event) -> list[dict[str, Any]]:
    """Rows of the agents an event concerns, made where they are new. Siblings in one batch are named together."""
    rows = []
    for name in _names(world, event.agent):
        row = world.find("agents", name)
        if row is None:
            row = world.add_row("agents", name, seq, event, agent=name, status="planned", n_generated=0, n_turns=0)
        row["worker"] = event.worker if event.worker is not None else row["worker"]
        rows.append(row)
    return rows


def _names(world: World, agent: str | None) -> list[str]:
    if agent is None:
        return []
    document = world.run.get("graph")
    nodes = document.get("nodes", ()) if isinstance(document, dict) else ()
    return [agent] if any(node["id"] == agent for node in nodes) else agent.split(BATCH)


def _operator(world: World, seq: int, event: Event) -> dict[str, Any]:
    row = world.find("operators", event.action)
    if row is None:
        row = world.add_row("operators", event.action, seq, event, action=event.action)
    for key, value in (("op", event.detail.get("op")), ("subject", event.detail.get("subject"))):
        row[key] = value if value is not None else row[key]
    for key in ("agent", "worker"):
        value = getattr(event, key)
        row[key] = value if value is not None else row[key]
    return row


def _chosen(alternatives: list[dict[str, Any]], how: str | None, worker: str | None) -> dict[str, Any]:
    same = [a for a in alternatives if a.get("how") == how]
    return next((a for a in same if a.get("worker") == worker), same[0] if same else {})


WORK_HANDLERS = {
    Kind.RUN_STARTED: run_started,
    Kind.RUN_FINISHED: run_finished,
    Kind.ACTION_PLANNED: action_planned,
    Kind.ACTION_STARTED: action_started,
    Kind.ACTION_FINISHED: action_finished,
    Kind.ACTION_FAILED: action_failed,
    Kind.ACTION_SKIPPED: action_skipped,
    Kind.STATE_CREATED: state_created,
    Kind.STATE_PHASE: state_phase,
    Kind.DECISION: decision,
    Kind.DECISION_ACTUAL: decision_actual,
    Kind.DECISION_AUDIT: decision_audit,
    Kind.PREFILL_CHUNK: prefill_chunk,
    Kind.TOKENS: tokens,
    Kind.TURN_FINISHED: turn_finished,
    Kind.NOTE: note,
}
