"""The event: the one thing the runtime writes, and the only contract between runtime, views and reports.

Every table (states, segments, edges, …) is a fold of these. Fields that a kind does not use are None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What happened. The comment names the fields used and the keys of ``detail``."""

    # detail: name, flow, graph (store.graph_document), model, config, namespace, lab, environment
    RUN_STARTED = "run.started"
    RUN_FINISHED = "run.finished"  # detail: status (done|failed|cancelled), error
    WORKER_JOINED = "worker.joined"  # worker; detail: host, pid, device, threads, memory_bytes
    WORKER_LOST = "worker.lost"  # worker; detail: reason
    ACTION_PLANNED = "action.planned"  # action, detail: op, subject
    ACTION_STARTED = "action.started"  # action, worker, agent; detail: op, threads (sent by the worker)
    ACTION_FINISHED = "action.finished"  # action, worker, agent, seconds; detail: op
    ACTION_FAILED = "action.failed"  # action, worker, agent; detail: op, error
    # action, agent, state (that it stands for); detail: op, because, instead (the agent whose answer stands)
    ACTION_SKIPPED = "action.skipped"
    # state, agent, n_tokens (whole path), nbytes (own segments);
    # detail: name, operator, parents, segments, exact, note, preview
    STATE_CREATED = "state.created"
    STATE_PHASE = "state.phase"  # state; detail: now, then
    SEGMENT_CREATED = "segment.created"  # segment, worker, n_tokens, nbytes; detail: parent, start, n_prompt, checksum
    SEGMENT_PLACED = "segment.placed"  # segment, worker, nbytes; detail: how, received_bytes of a hybrid
    SEGMENT_DROPPED = "segment.dropped"  # segment, worker, nbytes
    SEGMENT_SENT = "segment.sent"  # segment, worker (sender), nbytes (on the wire; 0 when mapped); detail: to, how
    SEGMENT_RECEIVED = "segment.received"  # segment, worker (receiver), nbytes, seconds; detail: from, how
    # edge, agent; detail: source, target, n_tokens, alternatives, chosen, worker, reason, policy, seen (cost/seen.py),
    # fields (in which the models of both ends differ; only where they do)
    DECISION = "decision"
    DECISION_ACTUAL = "decision.actual"  # edge, seconds; detail: how, worker, nbytes, terms, because
    DECISION_AUDIT = "decision.audit"  # edge; detail: roads [{how, worker, seconds, because}], regret
    PREFILL_CHUNK = "prefill.chunk"  # agent, worker, action, n_tokens (done); detail: total
    TOKENS = "tokens"  # agent, worker, action, n_tokens; detail: ids
    # agent, state, n_tokens (new prompt tokens), seconds (TTFT); detail: see Turn in bench/metrics.py
    TURN_FINISHED = "turn.finished"
    MEMORY = "memory"  # worker, nbytes (KV held); detail: pss_bytes, kv_unique_bytes
    NOTE = "note"  # detail: text, level


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes
    ----------
    kind
        Which.
    agent
        Agent or context; siblings that run as one batch are named together, joined by ``", "``.
    time_ns
        Unix time at the source, in ns. Sources' clocks may differ; order comes from ``seq`` of the log.
    source, source_seq
        Who saw it and its own running number: a gap in them is a lost event.
    n_tokens, nbytes, seconds
        Tokens, bytes, seconds.
    detail
        The rest, JSON-serialisable.
    """

    kind: Kind
    time_ns: int
    source: str
    source_seq: int
    agent: str | None = None
    action: str | None = None
    state: str | None = None
    segment: str | None = None
    edge: str | None = None
    worker: str | None = None
    n_tokens: int | None = None
    nbytes: int | None = None
    seconds: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)
