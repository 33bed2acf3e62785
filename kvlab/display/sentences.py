"""What happened, in one sentence."""

from __future__ import annotations

from collections.abc import Callable

from kvlab.display.quantities import bytes_text, count_text, counted, seconds_text
from kvlab.store.events import Event, Kind

SHORT_ID = 8
"""Characters shown of a segment's id, which is a digest."""


def sentence(event: Event) -> str:
    """``planner answered: 24 tokens prefilled, first token after 66 ms``."""
    return _SAY[event.kind](event)


def _short(segment: str | None) -> str:
    name = segment or "?"
    return name if len(name) <= 2 * SHORT_ID else f"{name[:SHORT_ID]}…"


def _state_created(e: Event) -> str:
    verb = e.detail.get("operator", "made")
    return f"{e.agent or 'someone'}: {verb} made {e.state}, {counted(e.n_tokens, 'token')}"


def _decision(e: Event) -> str:
    d = e.detail
    return f"{d.get('source')} → {d.get('target')}: {d.get('chosen')} on {d.get('worker')} chosen ({d.get('reason')})"


def _decision_actual(e: Event) -> str:
    why = f", because {e.detail['because']}" if e.detail.get("because") else ""
    return f"{e.edge}: did {e.detail.get('how')} in {seconds_text(e.seconds)}{why}"


def _audit(e: Event) -> str:
    regret = e.detail.get("regret")
    told = "no regret is known" if regret is None else f"regret {regret:.0%}"
    return f"{e.edge}: {counted(len(e.detail.get('roads') or ()), 'road')} measured, {told}"


def _turn(e: Event) -> str:
    d = e.detail
    return (
        f"{e.agent} answered: {counted(d.get('n_reused'), 'token')} reused, "
        f"{count_text(d.get('n_prefilled'))} prefilled, first token after {seconds_text(e.seconds)}"
    )


def _started(e: Event) -> str:
    name, flow = e.detail.get("name"), e.detail.get("flow")
    return f"run {name} started ({flow}flow)" if flow else f"{name} opened"


def _note(e: Event) -> str:
    level, text = e.detail.get("level", "info"), e.detail.get("text")
    return str(text) if level == "info" else f"{level}: {text}"


def _failed(e: Event) -> str:
    return f"{e.detail.get('op')} of {e.agent} failed: {e.detail.get('error')}"


_SAY: dict[Kind, Callable[[Event], str]] = {
    Kind.RUN_STARTED: _started,
    Kind.RUN_FINISHED: lambda e: f"run is {e.detail.get('status')}",
    Kind.WORKER_JOINED: lambda e: f"worker {e.worker} joined on {e.detail.get('host')}",
    Kind.WORKER_LOST: lambda e: f"worker {e.worker} was lost: {e.detail.get('reason')}",
    Kind.ACTION_PLANNED: lambda e: f"{e.detail.get('op')} of {e.detail.get('subject')} planned",
    Kind.ACTION_STARTED: lambda e: f"{e.detail.get('op')} of {e.agent} started on {e.worker}",
    Kind.ACTION_FINISHED: lambda e: f"{e.detail.get('op')} of {e.agent} took {seconds_text(e.seconds)}",
    Kind.ACTION_FAILED: _failed,
    Kind.ACTION_SKIPPED: lambda e: (
        f"{e.agent} is skipped: {e.detail.get('because')}; {e.detail.get('instead')}'s answer stands"
    ),
    Kind.STATE_CREATED: _state_created,
    Kind.STATE_PHASE: lambda e: f"{e.state} is {e.detail.get('then')}",
    Kind.SEGMENT_CREATED: lambda e: f"segment {_short(e.segment)} made on {e.worker}, {counted(e.n_tokens, 'token')}",
    Kind.SEGMENT_PLACED: lambda e: f"segment {_short(e.segment)} on {e.worker}: {e.detail.get('how')}",
    Kind.SEGMENT_DROPPED: lambda e: f"segment {_short(e.segment)} left {e.worker}, {bytes_text(e.nbytes)} freed",
    Kind.SEGMENT_SENT: lambda e: (
        f"{bytes_text(e.nbytes)} of {_short(e.segment)} went from {e.worker} to {e.detail.get('to')}"
    ),
    Kind.SEGMENT_RECEIVED: lambda e: (
        f"{bytes_text(e.nbytes)} of {_short(e.segment)} came to {e.worker} in {seconds_text(e.seconds)}"
    ),
    Kind.DECISION: _decision,
    Kind.DECISION_ACTUAL: _decision_actual,
    Kind.DECISION_AUDIT: _audit,
    Kind.PREFILL_CHUNK: lambda e: (
        f"{e.agent}: {count_text(e.n_tokens)} of {counted(e.detail.get('total'), 'token')} prefilled"
    ),
    Kind.TOKENS: lambda e: f"{e.agent}: {counted(e.n_tokens, 'more token')}",
    Kind.TURN_FINISHED: _turn,
    Kind.MEMORY: lambda e: f"{e.worker} holds {bytes_text(e.nbytes)} of K/V",
    Kind.NOTE: _note,
}
