"""What eviction costs: a trace replayed under budgets smaller than what it uses, by each policy.

The workflow-aware policy runs twice: with the trace's next uses, which stand for a workflow's graph, and without them.
Bélády's rule is the reference. Counts of tokens, so the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvlab.bench.summary import Metric, environment, measured, summary, write_summary
from kvlab.bench.trace import read_trace
from kvlab.policy.eviction import eviction_policy
from kvlab.policy.replay import Replayed, Request, replay, working_set

FRACTIONS = (2, 4, 8, 16)
"""Budgets are one of so many parts of the working set."""

RUNS: dict[str, tuple[str, bool]] = {
    "lru": ("lru", True),
    "arc": ("arc", True),
    "workflow_hidden": ("workflow", False),
    "workflow": ("workflow", True),
    "belady": ("belady", True),
}
"""Name in the summary → policy, and whether it is told next uses."""

Say = Callable[[str], None]


def run(out: Path, trace: Path, say: Say = print) -> dict[str, Any]:
    """Replay ``trace``, write ``out/summary.json``, and return it.

    Raises
    ------
    InvalidInput
        If the trace cannot be read.
    """
    began, requests = time.perf_counter(), read_trace(trace)
    whole = working_set(requests)
    found = {parts: _under(requests, whole // parts, say) for parts in FRACTIONS}
    where = environment(
        trace=trace.name, requests=len(requests), working_set_tokens=whole, seconds=time.perf_counter() - began
    )
    record = summary("eviction", metrics_of(found), where)
    write_summary(out, record)
    return record


def metrics_of(found: dict[int, dict[str, Replayed]]) -> dict[str, Metric]:
    """The figures: hit rates by policy and budget, and recomputed tokens, summed over budgets, against two policies."""
    metrics: dict[str, Metric] = {}
    for parts, runs in found.items():
        for name, one in runs.items():
            metrics[f"hit_rate_{name}@1/{parts}"] = measured(one.hit_rate, "of 1")
    total = {name: sum(runs[name].recomputed_tokens for runs in found.values()) for name in RUNS}
    metrics["recomputed_tokens_over_belady"] = measured(total["workflow"] / max(1, total["belady"]), "×")
    metrics["recomputed_tokens_vs_lru"] = measured(total["workflow"] / max(1, total["lru"]), "×")
    metrics["hit_rate_hidden_over_lru"] = measured(
        min(runs["workflow_hidden"].hit_rate / max(1e-9, runs["lru"].hit_rate) for runs in found.values()), "×"
    )
    return metrics


def _under(requests: Sequence[Request], budget: int, say: Say) -> dict[str, Replayed]:
    runs = {name: replay(requests, eviction_policy(policy), budget, future=f) for name, (policy, f) in RUNS.items()}
    told = ", ".join(f"{name} {one.hit_rate:.3f}" for name, one in runs.items())
    say(f"room for {budget:,} tokens: hit rate {told}")
    return runs
