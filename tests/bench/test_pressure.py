"""What a benchmark of eviction concludes, from counts; that a quick one runs; and what the kernel says of K/V memory."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvlab.bench.kv_memory import PAGE, Sample, Watch, kv_memory, kv_pss
from kvlab.bench.pressure import POLICIES, QUICK, Outcome, documents, metrics_of, recomputed_tokens, run, side_by_side
from kvlab.store.runs import runs_root
from kvlab.workloads import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="smaps and memfd are Linux's")


def test_the_kernel_counts_a_memory_once_whoever_maps_it_and_says_what_its_shares_add_up_to() -> None:
    from kvlab.transport.memory import Block

    def both() -> tuple[int, int, int]:
        return (*kv_memory([os.getpid(), 2**22 + 1]), kv_pss([os.getpid(), 2**22 + 1]))

    nbytes, memories, shares = both()
    block = Block.create(8 * PAGE - 100)
    assert both() == (nbytes, memories + 1, shares)  # nobody wrote to it yet
    block.tensor((8 * PAGE - 100,), __import__("torch").uint8).fill_(1)
    assert both() == (nbytes + 8 * PAGE, memories + 1, shares + 8 * PAGE)
    sealed = block.sealed()
    bytes(sealed.tensor((8 * PAGE - 100,), __import__("torch").uint8).numpy())
    assert both() == (nbytes + 8 * PAGE, memories + 1, shares + 8 * PAGE)
    other = os.memfd_create("another")
    os.write(other, b"x")
    del block
    assert both() == (nbytes + 8 * PAGE, memories + 1, shares + 8 * PAGE)
    os.close(other)
    del sealed
    assert both() == (nbytes, memories, shares)


def test_a_sample_is_over_its_limit_by_the_kernel_in_whole_pages_or_by_the_accounting() -> None:
    watch = Watch(list, lambda: 0)
    watch.samples = [Sample(100 + PAGE, 100, 1), Sample(101 + PAGE, 0, 1), Sample(0, 101, 0), Sample(50, 50, 9)]
    assert watch.over(100) == 2
    assert watch.peak_bytes == 101 + PAGE
    with Watch(lambda: [os.getpid()], lambda: 7, lambda: 5) as real:
        time.sleep(0.1)
    assert {(one.accounted_bytes, one.kv_bytes - kv_memory([os.getpid()])[0]) for one in real.samples} == {(7, 5)}
    assert real.pss_beyond == 0
    assert real.longest_seconds >= real.period_seconds >= 0.009


def test_workflows_side_by_side_take_turns_and_keep_to_themselves() -> None:
    both = side_by_side([build("tree", text, max_new_tokens=2) for text in ("One text.", "Another text.")])
    names = list(both.agents)
    assert names[:4] == ["0.thought", "1.thought", "0.thought.1", "1.thought.1"]
    assert both.agents["1.thought.1"].continues == "1.thought"
    assert [context.text for context in both.contexts.values()] == ["One text.", "Another text."]
    texts = documents(QUICK)
    assert len(set(texts)) == len(texts) == QUICK.documents


def test_tokens_computed_again_are_those_of_segments_seen_before() -> None:
    rows = [
        ("a", "computed", 30),
        ("a", "map", 30),
        ("b", "computed", 20),
        ("a", "computed", 30),
        ("b", "restored", 20),
    ]
    assert recomputed_tokens([dict(zip(("segment", "how", "nbytes"), row, strict=True)) for row in rows], 10) == 3


def test_figures_are_sums_over_workloads() -> None:
    def outcome(tokens: int, over: int = 0) -> Outcome:
        return Outcome(tokens, 10, over, 90, 100, 0, 0.01, 0.02, 1.0)

    tokens = {"lru": (40, 60), "workflow": (30, 25), "belady": (20, 30)}
    found = {
        (name, policy, 2): outcome(tokens[policy][i], over=i)
        for i, name in enumerate(("tree", "debate"))
        for policy in POLICIES
    }
    figures = {name: metric.value for name, metric in metrics_of(found).items()}
    assert figures["recomputed_tokens_lru@1/2"] == 100
    assert figures["recomputed_tokens_over_belady"] == 55 / 50
    assert figures["recomputed_tokens_vs_lru"] == 55 / 100
    assert figures["budget_exceeded"] == 3
    assert figures["peak_over_budget"] == 0.9


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_quick_one_runs_and_holds_what_must_hold(tiny_model_dir: str, tmp_path: Path, kvlab_folders: Any) -> None:
    told: list[str] = []
    before = list(runs_root().iterdir()) if runs_root().exists() else []
    record = run(tmp_path / "out", tiny_model_dir, quick=True, say=told.append)
    assert (list(runs_root().iterdir()) if runs_root().exists() else []) == before
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == record
    figures = {name: metric["value"] for name, metric in record["metrics"].items()}
    assert figures["budget_exceeded"] == 0
    assert figures["outputs_different"] == 0
    assert figures["recomputed_tokens_lru@1/4"] > figures["recomputed_tokens_lru@1/2"] > 0
