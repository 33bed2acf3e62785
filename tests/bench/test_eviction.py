"""Traces are read as they are or refused by line; what is concluded from them follows from counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvlab.bench.eviction import RUNS, run
from kvlab.bench.trace import read_trace
from kvlab.cli import main
from kvlab.errors import InvalidInput
from kvlab.policy.replay import Request

DATASETS = Path(__file__).parents[2] / "datasets"
LINE = {"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_a_trace_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    early = {**LINE, "timestamp": 1, "hash_ids": [7], "input_length": 512}
    assert read_trace(written(tmp_path / "t", LINE, "", early)) == [Request((7,), (512,)), Request((1, 2), (512, 188))]


@pytest.mark.parametrize(
    "line",
    ["{", "[" * 100_000, "[]", "3", "{}", {**LINE, "hash_ids": 3}, {**LINE, "hash_ids": ["a", "b"]},
     {**LINE, "hash_ids": [1, 1]},
     {**LINE, "input_length": 2000}, {**LINE, "input_length": 0}, {**LINE, "timestamp": None}, {**LINE, "input_length": True}],
)  # fmt: skip
def test_a_line_of_another_kind_is_refused_by_number(line: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        read_trace(written(tmp_path / "t", LINE, line))


def test_no_file_no_requests_and_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no file"):
        read_trace(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="no requests"):
        read_trace(written(tmp_path / "empty", ""))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        read_trace(tmp_path / "bytes")
    assert main(["bench", "eviction", "--trace", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2


def test_the_sample_is_what_its_script_makes() -> None:
    made = subprocess.run([sys.executable, DATASETS / "make_trace.py"], check=True, capture_output=True, timeout=60)
    assert made.stdout == (DATASETS / "sample_trace.jsonl").read_bytes()


def test_on_a_trace_the_workflow_aware_policy_is_as_good_as_it_must_be(tmp_path: Path) -> None:
    trace = written(tmp_path / "t", *(DATASETS / "sample_trace.jsonl").read_text().splitlines()[:300])
    told: list[str] = []
    record = run(tmp_path / "out", trace, told.append)
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == record
    figures = {name: metric["value"] for name, metric in record["metrics"].items()}
    assert figures["recomputed_tokens_over_belady"] <= 1.1
    assert figures["recomputed_tokens_vs_lru"] < 1
    assert figures["hit_rate_hidden_over_lru"] >= 1
    assert all(0 < figures[f"hit_rate_{name}@1/4"] < 1 for name in RUNS)
    assert len(told) == 4
