"""Handing a state from one worker to another: mapped, and as frames against what the connection carries by itself.

What encryption adds to either, and to opening a lab, is measured beside it (:mod:`kvlab.bench.encryption`).

The workers are a lab's own. A state is one segment of real K/V memory, written once; each round hands it on under a new
key, because Dask brings a worker only what it does not have. Works take turns; figures are medians.
"""

from __future__ import annotations

import itertools
import mmap
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvlab.bench.raw_link import RawLink
from kvlab.bench.summary import (
    Metric,
    difference_of_medians,
    environment,
    median_of,
    ratio_of_medians,
    summary,
    write_summary,
)
from kvlab.errors import TransferFailed
from kvlab.progress import SHOWN, Progress
from kvlab.runtime.keys import segment_key
from kvlab.runtime.measuring import nothing
from kvlab.transport.segment import Header, Segment, checksum

if TYPE_CHECKING:
    from kvlab.runtime.lab import Lab, SameHost

Metrics = dict[str, Metric]

ROUNDS, QUICK_ROUNDS = 11, 3
ROADS: dict[SameHost, str] = {"map": "map", "frames": "transfer"}
"""By which road a state goes between workers that are joined so."""

MARK = "bench"
"""Of this benchmark's keys, where a lab's have its own."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the state that is handed on, and of the small one that shows what does not depend on size."""

    state: int = 400_000_000
    small: int = 1_000_000


def written_state(n_tokens: int, seed: int) -> Segment:
    """On a worker: a segment of random numbers in sealed memory; every page is there."""
    import torch
    from distributed import get_worker

    from kvlab.runtime.worker_plugin import plugin_of
    from kvlab.transport.memory import PayloadAllocator

    engine = plugin_of(get_worker()).engine
    config = engine.config
    dtype = getattr(torch, config.dtype)
    allocate = PayloadAllocator(config.layers, config.kv_heads, config.head_dim, dtype, engine.device)
    payload = allocate(n_tokens)
    payload.normal_(generator=torch.Generator(engine.device).manual_seed(seed))
    payload, block = allocate.seal(payload)
    header = Header(f"bench-{seed}", tuple(payload.shape), config.dtype, b"", n_tokens, checksum=checksum(payload))
    return Segment(header, payload, block=block)


def same_again(segment: Segment) -> Segment:
    """On a worker: the segment under another key, over the same memory."""
    return segment


class Arrival(NamedTuple):
    """What a task on the target saw of the state: by what road it came (a segment's ``arrived``), and what it is.

    ``crossing_seconds`` are those from the sender's serializer to the end of what the task did with it.
    """

    road: str
    nbytes: int
    checksum: str
    crossing_seconds: float


def look_at(segment: Segment) -> Arrival:
    """On a worker: the segment's own account. Touches no page of it."""
    return Arrival(segment.arrived, segment.nbytes, segment.header.checksum, segment.seconds)


def read(segment: Segment) -> Arrival:
    """On a worker: as :func:`look_at`, after the checksum was verified against the bytes that arrived."""
    began = time.perf_counter()
    segment.tensor()
    verified = time.perf_counter() - began
    return look_at(segment)._replace(crossing_seconds=segment.seconds + verified)


def touch_memory(nbytes: int) -> float:
    """On a worker: seconds to get ``nbytes`` of new memory from the system and write to all of its pages; then give it up."""
    import numpy as np

    began = time.perf_counter()
    np.empty(nbytes, np.uint8)[:: mmap.PAGESIZE] = 1
    return time.perf_counter() - began


class Handed(NamedTuple):
    """How long one handoff took: as a client sees it, from submitting the task to its result, and on the way only."""

    task_seconds: float
    crossing_seconds: float


class Handoff:
    """A state on the first worker of a lab, handed to the second as often as asked."""

    def __init__(self, lab: Lab, nbytes: int) -> None:
        self._client = lab.core.client
        self.source, self.target = (lab.core.address_of(worker.name) for worker in lab.core.living_workers()[:2])
        n_tokens = max(1, round(nbytes / lab.core.config.bytes_per_token))
        self._state = self._client.submit(written_state, n_tokens, nbytes, pure=False, workers=self.source)
        made: Arrival = self._on(self.source, look_at, self._state)
        self.nbytes, self.checksum = made.nbytes, made.checksum

    def over(self, road: str, task: Callable[[Segment], Arrival]) -> Handed:
        """Hand the state to the target, which needs it for ``task``.

        Raises
        ------
        TransferFailed
            When it came by another road, or is not what was sent.
        """
        key = segment_key(f"bench{uuid.uuid4().hex}", 0, MARK)
        copy = self._client.submit(same_again, self._state, key=key, workers=self.source)
        self._on(self.source, look_at, copy)
        self.settle()
        began = time.perf_counter()
        arrival: Arrival = self._on(self.target, task, copy)
        seconds = time.perf_counter() - began
        if arrival[:3] != (road, self.nbytes, self.checksum):
            raise TransferFailed(
                f"{self.nbytes} bytes with checksum {self.checksum} were to arrive by {road}; got {arrival[:3]}",
                hint="states are mapped between workers that see each other in /proc, and only between those",
            )
        return Handed(seconds, arrival.crossing_seconds)

    def touch_memory(self) -> float:
        """Seconds in which the target gets memory for one more copy; right after, it gets as much without waiting."""
        return float(self._on(self.target, touch_memory, self.nbytes))

    def empty_task(self) -> float:
        """Wall time of a task on the target that does nothing."""
        self.settle()
        began = time.perf_counter()
        self._on(self.target, nothing)
        return time.perf_counter() - began

    def settle(self) -> None:
        """Return when both workers have done what was asked of them before, such as giving back a copy."""
        for where in (self.source, self.target):
            self._on(where, nothing)

    def _on(self, where: list[str], task: Callable[..., Any], *arguments: Any) -> Any:
        return self._client.submit(task, *arguments, pure=False, workers=where).result()


def mapping(lab: Lab, sizes: Sizes, rounds: int) -> Metrics:
    """A state mapped by a task that looks at none of its pages, against an empty task and against a small state."""
    state, small = Handoff(lab, sizes.state), Handoff(lab, sizes.small)
    works = (
        state.empty_task,
        lambda: state.over("map", look_at).task_seconds,
        lambda: small.over("map", look_at).task_seconds,
    )
    empty, large, little = in_turns(works, rounds)
    return {
        "same_host_ratio_to_empty_task": ratio_of_medians(large, empty),
        "same_host_extra_ms": difference_of_medians(_ms(large), _ms(little), "ms"),
        "empty_task_ms": median_of(_ms(empty), "ms"),
        "same_host_ms": median_of(_ms(large), "ms"),
        "same_host_small_ms": median_of(_ms(little), "ms"),
    }


def frames(lab: Lab, sizes: Sizes, rounds: int) -> Metrics:
    """A state sent as frames and its checksum verified, against as many bytes through bare connections.

    Ours is the time from the sender's serializer to the verified checksum: into memory that is new, as a state's is. What
    Dask needs for the task around it, which a bare connection has nothing like, is in the figures named ``task``.

    Free memory of a virtual machine may have been given back to its host, and takes up to a second to return: several times
    the transfer. So the target touches as much right before each round, and ``new_memory_ms`` says how long that took.
    """
    state = Handoff(lab, sizes.state)
    whole: list[float] = []
    touching: list[float] = []

    def cross() -> float:
        touching.append(state.touch_memory())
        handed = state.over("transfer", read)
        whole.append(handed.task_seconds)
        return handed.crossing_seconds

    with RawLink("stream", state.nbytes) as stream, RawLink("socket", state.nbytes) as raw:
        crossing, streamed, by_socket = in_turns([cross, lambda: stream.carry()[0], lambda: raw.carry()[0]], rounds)
    tasks = whole[-rounds:]
    return {
        "frames_fraction_of_raw_stream": ratio_of_medians(streamed, crossing),
        "frames_task_fraction_of_raw_stream": ratio_of_medians(streamed, tasks),
        "frames_bytes_per_second": median_of([state.nbytes / one for one in crossing], "B/s"),
        "frames_task_bytes_per_second": median_of([state.nbytes / one for one in tasks], "B/s"),
        "raw_stream_bytes_per_second": median_of([state.nbytes / one for one in streamed], "B/s"),
        "raw_socket_bytes_per_second": median_of([state.nbytes / one for one in by_socket], "B/s"),
        "new_memory_ms": median_of(_ms(touching[-rounds:]), "ms"),
    }


def in_turns(works: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """The seconds that each work says it took, in every round but one before the first; who begins changes."""
    seconds: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for which in itertools.islice(itertools.cycle(range(len(works))), number, number + len(works)):
            taken = works[which]()
            if number:
                seconds[which].append(taken)
    return seconds


def run(
    out: Path,
    model: str,
    quick: bool = False,  # noqa: FBT001, FBT002  the command's own flag
    progress: Progress = SHOWN,
    sizes: Sizes = Sizes(),
) -> dict[str, Any]:
    """Measure everything, write ``out/summary.json`` and return it.

    Parameters
    ----------
    model
        Whose K/V: two workers load it. Its weights do not matter here, its bytes a token do.
    quick
        Three rounds instead of eleven.
    progress
        Shows what is being done.
    sizes
        Of the states.
    """
    from kvlab.bench import encryption
    from kvlab.runtime.lab import Lab

    rounds = QUICK_ROUNDS if quick else ROUNDS
    began = time.perf_counter()
    metrics: Metrics = {}
    parts: dict[SameHost, Callable[[Lab, Sizes, int], Metrics]] = {"map": mapping, "frames": frames}
    for same_host, measure in parts.items():
        # A raw stream is not encrypted either.
        with Lab(model=model, workers=2, same_host=same_host, security=False, progress=progress) as lab:
            with progress.task(f"Handing over {sizes.state / 1e6:.0f} MB, {same_host}, {rounds} rounds"):
                metrics |= measure(lab, sizes, rounds)
            with (
                Lab(model=model, workers=2, same_host=same_host, progress=progress) as encrypted,
                progress.task(f"The same with and without TLS, {same_host}, {rounds} rounds"),
            ):
                metrics |= encryption.handing_over(encrypted, lab, ROADS[same_host], rounds)
            name, dtype = lab.core.model.name, lab.core.config.dtype
    openings = encryption.QUICK_OPENINGS if quick else encryption.OPENINGS
    with progress.task(f"Opening labs with and without TLS, {openings} rounds"):
        metrics |= encryption.opening(model, openings, Progress("nothing"))
    where = environment(
        model=name,
        dtype=dtype,
        state_bytes=sizes.state,
        small_bytes=sizes.small,
        rounds=rounds,
        seconds=time.perf_counter() - began,
    )
    record = summary("handoff", metrics, where)
    write_summary(out, record)
    return record


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1e3 * one for one in seconds]
