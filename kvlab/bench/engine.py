"""The engine against unmodified transformers, in one process, interleaved, with equal threads.

Ratios are of medians of CPU time at one thread: on a machine that others use too, wall time on several threads measures
the others (a thread that waits at a barrier for one that was preempted). Only forking is wall time. What each figure means
stands at the function that measures it.
"""

from __future__ import annotations

import copy
import itertools
import pydoc_data.topics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from kvlab.bench.summary import Metric, environment, measured, ratio_of_medians, summary, write_summary
from kvlab.engine.dense import DenseModel, shallow_copy
from kvlab.engine.loading import load_engine
from kvlab.engine.protocol import Branch
from kvlab.engine.torch_engine import TorchEngine
from kvlab.errors import InvalidInput
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids, unpack_ids

Progress = Callable[[str], None]
Clock = Callable[[], float]
Metrics = dict[str, Metric]

SHORT, STATE, LONG = 1024, 2048, 6144
N_SEGMENTS = 4
N_SUFFIX = 32
N_BRANCHES, N_BRANCH_NEW = 16, 48
SHORTEST_BRANCH_PROMPT = 9
N_DECODED = 16
N_BF16, N_BF16_PAST = 160, 64


class Rig:
    """Both engines on the same weights, the text's ids, and the states that several measurements share."""

    def __init__(self, model_path: Path, progress: Progress, rounds: int) -> None:
        progress("loading the model twice")
        self.path = model_path
        self.engine = load_engine(model_path)
        self.dense = DenseModel.load(model_path)
        self.progress = progress
        self.rounds = rounds
        text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
        tokenizer = Tokenizer.from_file(str(model_path / "tokenizer.json"))
        self.ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids

    def segments(self, cuts: Sequence[int], past: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
        """``past`` and one more segment for each pair of consecutive ``cuts``."""
        path = list(past)
        for start, end in itertools.pairwise(cuts):
            path.append(self.engine.prefill(pack_ids(self.ids[start:end]), path, self.engine.new_payload).payload)
        return path

    def interleave(
        self, *works: Callable[[], Any], rounds: int, clock: Clock = time.perf_counter, unmeasured: int = 1
    ) -> list[list[float]]:
        """Seconds of each work in every round after the ``unmeasured`` ones; who goes first alternates."""
        seconds: list[list[float]] = [[] for _ in works]
        order = list(range(len(works)))
        for number in range(unmeasured + rounds):
            for which in order if number % 2 else reversed(order):
                began = clock()
                works[which]()
                taken = clock() - began
                if number >= unmeasured:
                    seconds[which].append(taken)
        return seconds


def prefill(rig: Rig) -> Metrics:
    """CPU time at one thread to prefill n tokens on nothing, ours over transformers'."""
    found: Metrics = {}
    for n in (SHORT, STATE):
        rig.progress(f"prefill of {n}")
        ids = rig.ids[:n]
        with threads(1):
            ours, theirs = rig.interleave(
                partial(rig.engine.prefill, pack_ids(ids), [], rig.engine.new_payload),
                partial(rig.dense.prefill, ids),
                rounds=rig.rounds,
                clock=time.process_time,
                unmeasured=0 if found else 1,
            )
        found[f"prefill_ratio_vs_hf@{n}"] = ratio_of_medians(ours, theirs)
        found[f"prefill_ratio_vs_hf_min@{n}"] = measured(min(ours) / min(theirs), "×")
    return found


def exactness(rig: Rig, past: Sequence[torch.Tensor]) -> Metrics:
    """Largest difference of logits from a cold dense run, over 32 tokens resumed on 2,048 in four segments."""
    rig.progress("exactness")
    total = STATE + N_SUFFIX
    truth, _ = rig.dense.prefill(rig.ids[:total], keep=range(STATE, total))
    got = rig.engine.logits(pack_ids(rig.ids[STATE:total]), past)
    return {f"max_logit_diff@{STATE}": measured(float((got - truth).abs().max()), "logit")}


def time_to_first_token(rig: Rig, past: Sequence[torch.Tensor]) -> Metrics:
    """CPU time at one thread to prefill 2,048 + 32 tokens over that to resume 32 on the state; the engine alone."""
    rig.progress("time to first token")
    total = STATE + N_SUFFIX
    engine = rig.engine
    with threads(1):
        resume, cold = rig.interleave(
            lambda: engine.prefill(pack_ids(rig.ids[STATE:total]), past, engine.new_payload),
            lambda: engine.prefill(pack_ids(rig.ids[:total]), [], engine.new_payload),
            rounds=rig.rounds,
            clock=time.process_time,
            unmeasured=0,
        )
    return {f"ttft_ratio@{STATE}": ratio_of_medians(cold, resume)}


def fork(rig: Rig, past: Sequence[torch.Tensor]) -> Metrics:
    """Wall time to deep-copy transformers' cache over that to fork the state, which is a new list of its segments."""
    rig.progress("fork")
    cache = rig.dense.cache_of(torch.cat(list(past), 3))
    repeats = 1000

    def forks() -> None:
        for _ in range(repeats):
            list(past)

    ours, theirs = rig.interleave(forks, lambda: copy.deepcopy(cache), rounds=max(5, rig.rounds))
    return {f"fork_ratio_vs_deepcopy@{STATE}": ratio_of_medians(theirs, [one / repeats for one in ours])}


def decode(rig: Rig, past: Sequence[torch.Tensor], n: int) -> Metrics:
    """CPU time at one thread of greedy steps on n tokens in four segments, ours over transformers'."""
    rig.progress(f"decode on {n}")
    first, engine = rig.ids[n], rig.engine
    cache = rig.dense.cache_of(torch.cat(list(past), 3))
    tokens: dict[str, list[int]] = {}

    def ours() -> None:
        made = engine.resume(Branch(pack_ids([first]), Sampling(N_DECODED)), past, engine.new_payload)
        tokens["ours"] = list(unpack_ids(made.generated))

    def theirs() -> None:
        tokens["theirs"] = rig.dense.generate([[first]], shallow_copy(cache), N_DECODED)[0]

    with threads(1):
        mine, other = rig.interleave(ours, theirs, rounds=rig.rounds + 2, clock=time.process_time)
    return {
        f"decode_ratio_vs_hf@{n}": ratio_of_medians(mine, other),
        f"decode_ratio_vs_hf_min@{n}": measured(min(mine) / min(other), "×"),
        f"decode_equal_tokens@{n}": measured(_equal(tokens["ours"], tokens["theirs"]), "of 1"),
    }


def siblings(rig: Rig) -> Metrics:
    """16 branches on 1,024 tokens against one by one, and against transformers' batch on a repeated cache; wall time.

    With all threads, as workflows run: a single step is bound by reading weights, which more threads do not speed up
    much, a batch by arithmetic, which they do. Prompts are of 9 to 24 tokens and answers of 48, as agents' are in the
    demonstration; transformers pads and masks the prompts.
    """
    rig.progress("siblings")
    engine = rig.engine
    past = rig.segments((0, SHORT))
    cache = rig.dense.cache_of(past[0])
    lengths = [SHORTEST_BRANCH_PROMPT + i for i in range(N_BRANCHES)]
    prompts = [rig.ids[SHORT + 40 * i : SHORT + 40 * i + length] for i, length in enumerate(lengths)]
    branches = [Branch(pack_ids(prompt), Sampling(N_BRANCH_NEW)) for prompt in prompts]

    tokens: dict[str, list[list[int]]] = {}

    def packed() -> None:
        made = engine.decode_batch(branches, past, engine.new_payload)
        tokens["ours"] = [list(unpack_ids(one.generated)) for one in made]

    def one_by_one() -> None:
        for branch in branches:
            engine.resume(branch, past, engine.new_payload)

    def batch() -> None:
        repeated = shallow_copy(cache)
        repeated.batch_repeat_interleave(N_BRANCHES)
        tokens["theirs"] = rig.dense.generate(prompts, repeated, N_BRANCH_NEW)

    together, apart, repeated_batch = rig.interleave(packed, one_by_one, batch, rounds=rig.rounds, unmeasured=0)
    return {
        "siblings_speedup_vs_one_by_one": ratio_of_medians(apart, together),
        "siblings_speedup_vs_one_by_one_min": measured(min(apart) / min(together), "×"),
        "siblings_speedup_vs_hf_batch": ratio_of_medians(repeated_batch, together),
        "siblings_speedup_vs_hf_batch_min": measured(min(repeated_batch) / min(together), "×"),
        "siblings_equal_tokens": measured(_equal(list(chain(*tokens["ours"])), list(chain(*tokens["theirs"]))), "of 1"),
    }


def bf16(rig: Rig) -> Metrics:
    """Largest logit error of bf16 against the same rounded weights computed in fp32, ours over SDPA's."""
    rig.progress("bf16")
    ids = rig.ids[:N_BF16]
    rows = range(N_BF16_PAST, N_BF16)
    truth = DenseModel.load(rig.path, torch.bfloat16).in_fp32().prefill(ids, rows)[0]
    theirs = DenseModel.load(rig.path, torch.bfloat16).prefill(ids, rows)[0]
    engine: TorchEngine = load_engine(rig.path, dtype="bfloat16")
    half = N_BF16_PAST // 2
    past = [engine.prefill(pack_ids(ids[:half]), [], engine.new_payload).payload]
    past.append(engine.prefill(pack_ids(ids[half:N_BF16_PAST]), past, engine.new_payload).payload)
    ours = engine.logits(pack_ids(ids[N_BF16_PAST:]), past)
    return {
        "bf16_error_vs_sdpa": measured(float((ours - truth).abs().max() / (theirs - truth).abs().max()), "×"),
        "bf16_error": measured(float((ours - truth).abs().max()), "logit"),
    }


def _silent(text: str) -> None:
    del text


def run(
    out: Path,
    model_path: str | Path,
    quick: bool = False,  # noqa: FBT001, FBT002  the command's own flag
    progress: Progress = _silent,
) -> dict[str, Any]:
    """Measure everything, write ``out/summary.json`` and return it.

    Parameters
    ----------
    model_path
        Directory with config, safetensors and ``tokenizer.json``; at least 6,177 positions.
    quick
        One round instead of three.
    progress
        Told what is being measured.

    Raises
    ------
    InvalidInput
        When the model has too few positions for the longest state.
    """
    rig = Rig(Path(model_path), progress, rounds=1 if quick else 3)
    if rig.engine.config.max_positions < LONG + N_SUFFIX + 1 or len(rig.ids) < LONG + N_SUFFIX + 1:
        raise InvalidInput(
            f"{rig.engine.identity.name} has {rig.engine.config.max_positions} positions and the text {len(rig.ids)} tokens",
            hint=f"this benchmark needs {LONG + N_SUFFIX + 1} of both, as with SmolLM2-135M-Instruct",
        )
    began = time.perf_counter()
    metrics: Metrics = prefill(rig)
    progress("the shared states")
    past = rig.segments([STATE * i // N_SEGMENTS for i in range(N_SEGMENTS + 1)])
    metrics |= exactness(rig, past) | time_to_first_token(rig, past) | fork(rig, past) | decode(rig, past, STATE)
    rest = [STATE + (LONG - STATE) * i // (N_SEGMENTS - 1) for i in range(N_SEGMENTS)]
    metrics |= decode(rig, rig.segments(rest, [torch.cat(past, 3)]), LONG)
    metrics |= siblings(rig) | bf16(rig)
    where = environment(
        model=rig.engine.identity.name,
        dtype=rig.engine.config.dtype,
        baseline=rig.dense.description,
        threads=torch.get_num_threads(),
        threads_of_cpu_times=1,
        rounds=rig.rounds,
        seconds=time.perf_counter() - began,
    )
    record = summary("engine", metrics, where)
    write_summary(out, record)
    return record


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Torch computes on ``n`` threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _equal(ours: Sequence[int], theirs: Sequence[int]) -> float:
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)
