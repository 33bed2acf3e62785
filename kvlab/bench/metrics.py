"""Every metric's definition, once. Reports print these texts beside the numbers.

TTFT
    Seconds from the moment all of an agent's *texts* are available (its own prompt and the answers it reads) to its
    first token, without the time it waited for a busy worker or link (that is *queue*). Making or moving a shared state
    that the agent is the first to need counts: it is on its path.
step latency
    Seconds between consecutive tokens of one agent.
tokens prefilled
    Prompt tokens whose K/V was computed for this agent.
tokens reused
    Prompt tokens of this agent whose K/V was already there, in place, mapped or moved.
bytes moved
    Bytes of K/V put on a wire. Mapping moves none.
peak KV bytes
    The largest sum of distinct K/V memory held at one moment, over all workers.
Ω (overhead)
    Wall time that is neither model compute nor moving bytes nor queue: scheduling, messages, planning, bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """The measured life of one agent's turn; the ``detail`` of a ``turn.finished`` event has these keys."""

    n_prefilled: int
    n_reused: int
    n_generated: int
    ttft_seconds: float
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    overhead_seconds: float
    finish: str
    worker: str
    token_ids: tuple[int, ...]
    text: str
    prompt_tokens: int
