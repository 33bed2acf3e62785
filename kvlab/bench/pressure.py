"""What eviction costs on real runs: workloads under budgets of a part of what they use, by each policy.

Each workload runs over many documents at once, its agents taking turns, so that no document's state is all there is. The
working set is the most K/V that an unlimited run holds. One worker, so that nothing is computed again because another one
is busy, but only because it was evicted. Recomputed are tokens of segments that a worker computed though
one had done so before; nothing is spilled here, so what was evicted and is used again is computed again.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kvlab.bench.kv_memory import Watch, kv_memory
from kvlab.bench.summary import Metric, environment, measured, summary, write_summary
from kvlab.errors import InvalidInput
from kvlab.policy.eviction import eviction_policy
from kvlab.runtime.keys import TAILS
from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workloads import build

if TYPE_CHECKING:
    from kvlab.runtime.lab import Lab

POLICIES = ("lru", "workflow", "belady")
FRACTIONS, QUICK_FRACTIONS = (2, 4, 8), (2, 4)
"""Budgets are one of so many parts of the working set."""

EMPTYING_SECONDS = 5.0
"""How long what a run before left behind may stay in its workers: it does not belong to the next one's memory."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How much a workload does: documents, their characters, and each agent's new tokens."""

    documents: int
    n_chars: int
    max_new_tokens: int


FULL, QUICK = Size(10, 320, 4), Size(5, 160, 3)
WORKLOADS: Mapping[str, Mapping[str, int]] = {
    "chain": {"agents": 4},
    "debate": {"rounds": 3},
    "tree": {"depth": 2, "width": 2},
    "rag": {"questions": 3},
}
QUICK_WORKLOADS = ("debate", "tree")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run under a budget came to.

    Attributes
    ----------
    recomputed_tokens
        Computed once more.
    n_samples, n_over
        Looks at the memory, and those in which it was over the budget.
    peak_bytes, limit_bytes
        The most K/V at one moment, by the kernel, and what was allowed.
    n_different
        Agents that answered otherwise than in the unlimited run.
    period_seconds, longest_seconds, seconds
        Between two looks on average and at most, and of the run.
    pss_beyond
        Bytes that proportional shares came to at the end beyond what was counted.
    """

    recomputed_tokens: int
    n_samples: int
    n_over: int
    peak_bytes: int
    limit_bytes: int
    n_different: int
    period_seconds: float
    longest_seconds: float
    seconds: float
    pss_beyond: int = 0


def side_by_side(workflows: Sequence[Workflow]) -> Workflow:
    """One workflow of several: everything of the n-th is called ``n.…``, and their agents take turns."""
    told = [yaml.safe_load(workflow.to_yaml()) for workflow in workflows]
    contexts = {f"{n}.{name}": text for n, one in enumerate(told) for name, text in one["contexts"].items()}
    longest = max(len(one["agents"]) for one in told)
    agents = [
        _renamed(one["agents"][turn], f"{n}.")
        for turn in range(longest)
        for n, one in enumerate(told)
        if turn < len(one["agents"])
    ]
    document = {"name": workflows[0].name, "contexts": contexts, "agents": agents}
    return Workflow.from_yaml(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _renamed(agent: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = {**agent, "name": prefix + agent["name"]}
    if "continues" in agent:
        found["continues"] = prefix + agent["continues"]
    if "merge" in agent:
        found["merge"] = [prefix + name for name in agent["merge"]]
    parts = agent.get("prompt", ())
    if parts:
        found["prompt"] = [
            {key: prefix + name for key, name in part.items()} if isinstance(part, dict) else part for part in parts
        ]
    return found


def documents(size: Size) -> list[str]:
    """Different texts, one a document: consecutive pieces of the sample text."""
    whole = sample_text(size.documents * size.n_chars + 200)
    return [whole[n * size.n_chars : (n + 1) * size.n_chars] for n in range(size.documents)]


def run(out: Path, model: str, *, quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Run every workload under every budget by every policy, write ``out/summary.json``, and return it.

    Raises
    ------
    NoRoom
        If a budget is too small for a single agent.
    """
    from kvlab.runtime.lab import Lab

    if not Path("/proc/self/smaps").exists():
        raise InvalidInput("this system does not say what memory its processes hold", hint="run it on Linux")
    began, size = time.perf_counter(), QUICK if quick else FULL
    names = QUICK_WORKLOADS if quick else tuple(WORKLOADS)
    fractions = QUICK_FRACTIONS if quick else FRACTIONS
    texts = documents(size)
    flows = {
        name: side_by_side([build(name, text, max_new_tokens=size.max_new_tokens, **WORKLOADS[name]) for text in texts])
        for name in names
    }
    found: dict[tuple[str, str, int], Outcome] = {}
    working: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory(prefix="kvlab-eviction-") as runs,
        Lab(model=model, workers=1, spill_bytes=0) as lab,
    ):
        for name, flow in flows.items():
            expected, alone = _answers(lab, flow, runs)
            if alone.recomputed_tokens:
                raise InvalidInput(
                    f"{name} was evicted from in its unlimited run", hint="free memory, or another --model"
                )
            working[name] = alone.peak_bytes
            say(f"{name}: {len(flow.agents)} agents use {alone.peak_bytes / 2**20:.1f} MiB, {alone.seconds:.1f} s")
            for parts in fractions:
                for policy in POLICIES:
                    outcome = _under(lab, flow, runs, policy, alone.peak_bytes // parts, expected)
                    found[name, policy, parts] = outcome
                    say(
                        f"{name} in 1/{parts} by {policy}: {outcome.recomputed_tokens:,} tokens recomputed, "
                        f"at most {outcome.peak_bytes / 2**20:.1f} of {outcome.limit_bytes / 2**20:.1f} MiB, "
                        f"{outcome.seconds:.1f} s"
                    )
        where = environment(
            model=lab.card.name,
            working_set_bytes=working,
            workloads={name: dict(WORKLOADS[name]) for name in names},
            documents=size.documents,
            workers=len(lab.workers),
            seconds=time.perf_counter() - began,
        )
    record = summary("eviction-runs", metrics_of(found), where)
    write_summary(out, record)
    return record


def metrics_of(found: Mapping[tuple[str, str, int], Outcome]) -> dict[str, Metric]:
    """The figures of outcomes by (workload, policy, parts): recomputed tokens summed over workloads, and what held."""
    metrics: dict[str, Metric] = {}
    total, by_budget = Counter[str](), Counter[tuple[str, int]]()
    for (_, policy, parts), one in found.items():
        total[policy] += one.recomputed_tokens
        by_budget[policy, parts] += one.recomputed_tokens
    for (policy, parts), n_tokens in by_budget.items():
        metrics[f"recomputed_tokens_{policy}@1/{parts}"] = measured(n_tokens, "tokens")
    metrics["recomputed_tokens_over_belady"] = measured(total["workflow"] / max(1, total["belady"]), "×")
    metrics["recomputed_tokens_vs_lru"] = measured(total["workflow"] / max(1, total["lru"]), "×")
    outcomes = list(found.values())
    looked = sum(one.n_samples for one in outcomes)
    over = sum(one.n_over for one in outcomes)
    metrics["budget_exceeded"] = Metric(over, f"of {looked} samples", "measured", looked, over, over)
    metrics["peak_over_budget"] = measured(max(one.peak_bytes / one.limit_bytes for one in outcomes), "×")
    metrics["outputs_different"] = measured(sum(one.n_different for one in outcomes), "agents")
    periods = [one.period_seconds for one in outcomes]
    metrics["sampling_period"] = Metric(
        sum(periods) / len(periods), "s", "measured", looked, min(periods), max(periods)
    )
    metrics["longest_between_samples"] = measured(max(one.longest_seconds for one in outcomes), "s")
    metrics["pss_beyond_counted"] = measured(max(one.pss_beyond for one in outcomes), "bytes")
    return metrics


def _under(
    lab: Lab, flow: Workflow, runs: str, policy: str, limit: int, expected: Mapping[str, tuple[int, ...]]
) -> Outcome:
    """Run ``flow`` in ``limit`` bytes, evicting by ``policy``, and leave the lab as it was."""
    catalog = lab.core.catalog
    before, catalog.budget.limit_bytes = catalog.budget.limit_bytes, limit
    catalog.evictor.policy = eviction_policy(policy)
    try:
        return _answers(lab, flow, runs, expected)[1]
    finally:
        catalog.budget.limit_bytes = before


def _answers(
    lab: Lab, flow: Workflow, runs: str, expected: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[dict[str, tuple[int, ...]], Outcome]:
    """Run ``flow`` on an empty lab, recorded in the folder ``runs``: every agent's token ids, and what the run came to."""
    catalog = lab.core.catalog
    lab.clear()
    pids = [worker.pid for worker in lab.workers.values()]
    deadline = time.monotonic() + EMPTYING_SECONDS
    while kv_memory(pids)[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    budget = catalog.budget
    with Watch(lambda: pids, lambda: budget.used_bytes, lambda: budget.held_for(TAILS)) as watch:
        began = time.perf_counter()
        run = lab.run(flow, root=runs).wait()
        seconds = time.perf_counter() - began
    found = {name: tuple(run[name].token_ids) for name in flow.agents}
    outcome = Outcome(
        recomputed_tokens(run.tables["placements"].to_pylist(), lab.core.config.bytes_per_token),
        len(watch.samples),
        watch.over(catalog.budget.limit_bytes),
        watch.peak_bytes,
        catalog.budget.limit_bytes,
        sum(found[name] != ids for name, ids in (expected or {}).items()),
        watch.period_seconds,
        watch.longest_seconds,
        seconds,
        watch.pss_beyond,
    )
    del run
    lab.clear()
    return found, outcome


def recomputed_tokens(placements: Sequence[Mapping[str, Any]], bytes_per_token: int) -> int:
    """Tokens of segments that were computed though they had been computed before, by a run's table of placements."""
    seen: set[str] = set()
    again = 0
    for row in placements:
        if row["how"] == "computed":
            again += (row["nbytes"] or 0) if row["segment"] in seen else 0
            seen.add(row["segment"])
    return again // bytes_per_token
