"""The probes of a calibration: what this model takes on these workers, and what bytes take between them.

Every probe is the real thing: prefills and decode steps of the loaded model, segments that cross as any other does.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from distributed import get_worker

from kvlab.cost.model import DecodeCurve, Link, PrefillCurve, link_name
from kvlab.engine.protocol import Branch
from kvlab.runtime.core import Core
from kvlab.runtime.engines import ModelSpec, engine_for, on_model_thread
from kvlab.runtime.halves import behind
from kvlab.runtime.tasks import touch, unspill
from kvlab.runtime.worker_plugin import plugin_of
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids
from kvlab.store.spill import spill
from kvlab.transport.memory import PayloadAllocator
from kvlab.transport.segment import Header, Segment, checksum

if TYPE_CHECKING:
    import torch

    from kvlab.engine.torch_engine import TorchEngine


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    points
        (new tokens, past tokens) of prefills, as far as the model has positions.
    link_tokens
        Sizes of segments that are moved, smallest first; larger ones are left out once one took ``long_enough`` seconds.
    repeats
        Of each; the median counts.
    """

    points: tuple[tuple[int, int], ...]
    link_tokens: tuple[int, ...]
    repeats: int
    decode_steps: int
    long_enough: float


QUICK = Effort(((32, 0), (128, 0), (448, 0), (32, 448), (128, 448)), (1, 8, 64, 256), 2, 12, 0.25)
"""A few seconds, at the first start."""
THOROUGH = Effort(
    ((32, 0), (128, 0), (512, 0), (1024, 0), (2048, 0), (32, 2048), (512, 1024)),
    (1, 8, 64, 256, 1024),
    2,
    24,
    1.0,
)
"""Within half a minute, when a person asks for it."""
BRANCHES = 4
MOST_PAIRS = 6
PROBE_COPY_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Compute:
    """What the model takes on one worker that has all cores."""

    prefill: PrefillCurve
    decode: DecodeCurve
    copy_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Links:
    """What messages and bytes take between workers; see :class:`kvlab.cost.model.CostModel` for the fields."""

    frames: Link
    links: dict[str, Link]
    map_seconds: float
    task_seconds: float
    receive_seconds_per_byte: float


# -- on a worker


def compute_points(threads: int, effort: Effort, beside: ModelSpec | None = None) -> dict[str, Any]:
    """Seconds of prefills and decode steps, and of copying."""
    engine = plugin_of(get_worker()).engine if beside is None else on_model_thread(engine_for, beside)
    measured: dict[str, Any] = on_model_thread(_compute_points, engine, threads, effort)
    copied = probe_segment(PROBE_COPY_TOKENS)
    behind(1, copied)
    seconds = median(_timed(lambda: behind(1, copied)) for _ in range(effort.repeats))
    return {**measured, "copy_bytes_per_second": copied.nbytes / seconds}


def _compute_points(engine: TorchEngine, threads: int, effort: Effort) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    most = engine.config.max_positions // 2
    points = [(n, past) for n, past in effort.points if n <= most and past <= most] or [(min(32, most), 0)]
    longest = max(max(n, past) for n, past in points)
    whole = engine.prefill(_ids(longest), [], engine.new_payload).payload
    found = []
    for n_tokens, n_past in points:
        past = [whole[:, :, :, :n_past]] if n_past else []
        work = partial(engine.prefill, _ids(n_tokens), past, engine.new_payload)
        taken = [_timed(work) for _ in range(effort.repeats)]
        found.append((n_tokens, n_past, median(taken)))
    near, far = whole[:, :, :, : max(1, longest // 8)], whole
    return {
        "prefill": found,
        "near": (near.shape[3], _step_seconds(engine, near, 1, effort)),
        "far": (far.shape[3], _step_seconds(engine, far, 1, effort)),
        "branches": _step_seconds(engine, near, BRANCHES, effort),
    }


def _step_seconds(engine: TorchEngine, past: torch.Tensor, n_branches: int, effort: Effort) -> float:
    """Seconds of one decode step of so many branches."""
    branches = [Branch(_ids(2 + i), Sampling(effort.decode_steps)) for i in range(n_branches)]
    if n_branches == 1:
        produced = engine.resume(branches[0], [past], engine.new_payload)
    else:
        produced = engine.decode_batch(branches, [past], engine.new_payload)[0]
    return produced.decode_seconds / max(1, effort.decode_steps - 1)


def probe_segment(n_tokens: int) -> Segment:
    """A segment of ``n_tokens`` zeros whose pages are there, to be moved."""
    import torch

    engine = plugin_of(get_worker()).engine
    config = engine.config
    allocate = PayloadAllocator(
        config.layers, config.kv_heads, config.head_dim, getattr(torch, config.dtype), engine.device
    )
    payload, block = allocate.seal(allocate(n_tokens).zero_())
    header = Header(f"probe-{n_tokens}", tuple(payload.shape), config.dtype, b"", 0, checksum=checksum(payload))
    return Segment(header, payload, block=block)


def nothing() -> str:
    """An empty task."""
    return plugin_of(get_worker()).worker_name


def cpu_seconds() -> float:
    """CPU time this process has used."""
    return time.process_time()


def disk_points(folder: str, effort: Effort) -> list[tuple[int, float]]:
    """(bytes, seconds) of reading back what was just spilled to ``folder``."""
    points = []
    for n_tokens in effort.link_tokens:
        path = f"{folder}/probe-{n_tokens}"
        Path(path).touch(mode=0o600)
        file = spill(path, probe_segment(n_tokens).tensor())
        try:
            taken = [_timed(partial(unspill, "probe", file, b"", 0)) for _ in range(effort.repeats)]
        finally:
            Path(path).unlink()
        points.append((file.payload_nbytes, median(taken)))
    return points


# -- from the lab


def measure_disk(core: Core, folder: Path, effort: Effort) -> Link:
    """Reading back spilled segments on the first worker; files that were just written, as spilled ones often are."""
    where = core.address_of(core.living_workers()[0].name)
    return Link.fit(core.client.submit(disk_points, str(folder), effort, pure=False, workers=where).result())


def measure_compute(core: Core, cores: int, effort: Effort) -> Compute:
    """Prefill and decode curves of the first worker with all its cores."""
    first = core.living_workers()[0].name
    told = core.client.submit(
        compute_points, cores, effort, core.beside, pure=False, workers=core.address_of(first), resources={"model": 1}
    ).result()
    prefill = PrefillCurve.fit(told["prefill"], cores)
    (n_near, near), (n_far, far) = told["near"], told["far"]
    past = max(0.0, (far - near) / max(1, n_far - n_near))
    step = max(0.0, near - past * n_near)
    branch = max(0.0, (told["branches"] - near) / (BRANCHES - 1))
    return Compute(prefill, DecodeCurve(step, branch, past, cores), told["copy_bytes_per_second"])


def measure_links(core: Core, effort: Effort) -> Links:
    """Round trips, mappings, and each pair of workers (the first :data:`MOST_PAIRS` of them) that sends frames."""
    names = [worker.name for worker in core.living_workers()]
    task = _empty_task(core, names[0], 7)
    pairs = list(itertools.permutations(names, 2))[:MOST_PAIRS]
    if core.same_host == "map":
        # The client announces no probe, so what it gathers comes as frames, also where workers map from each other.
        frames = Link.fit(_sized(core, _points(effort, lambda n: _gathered(core, names[0], n))))
        mapped = max(_moved(core, *pairs[0], effort.link_tokens[0]) - task, 1e-4) if pairs else 0.0
        return Links(frames, {}, mapped, task, 0.5 / frames.bytes_per_second)
    if not pairs:
        return Links(Link(task, 1e9), {}, task, task, 0.0)
    links: dict[str, Link] = {}
    busy: list[float] = []
    for source, target in pairs:
        smallest = effort.link_tokens[0]
        first = _moved(core, source, target, smallest)
        again = median(_moved(core, source, target, smallest) for _ in range(2))
        before = _cpu(core, source, target)
        sent: list[int] = []

        def moved(n_tokens: int, source: str = source, target: str = target, sent: list[int] = sent) -> float:
            sent.append(n_tokens * core.config.bytes_per_token)
            return max(1e-4, _moved(core, source, target, n_tokens) - task)

        points = _sized(core, _points(effort, moved))
        links[link_name(source, target)] = Link.fit(points, cold=max(0.0, first - again))
        busy.append(max(0.0, _cpu(core, source, target) - before) / sum(sent))
    middle = sorted(links.values(), key=lambda link: link.bytes_per_second)[len(links) // 2]
    cores = min(core.workers[name].cores for name in names)
    return Links(middle, links, middle.t0, task, median(busy) / cores)


def _points(effort: Effort, move: Callable[[int], float]) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    for n_tokens in effort.link_tokens:
        seconds = median(move(n_tokens) for _ in range(effort.repeats))
        points.append((n_tokens, seconds))
        if seconds > effort.long_enough and len(points) > 1:
            break
    return points


def _sized(core: Core, points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(n_tokens * core.config.bytes_per_token, seconds) for n_tokens, seconds in points]


def _empty_task(core: Core, worker: str, n: int) -> float:
    where = core.address_of(worker)
    return median(_timed(lambda: core.client.submit(nothing, pure=False, workers=where).result()) for _ in range(n))


def _moved(core: Core, source: str, target: str, n_tokens: int) -> float:
    """Seconds of a task on ``target`` that reads a fresh segment of ``source``."""
    made = _made(core, source, n_tokens)
    where = core.address_of(target)
    return _timed(lambda: core.client.submit(touch, made, pure=False, workers=where).result())


def _gathered(core: Core, source: str, n_tokens: int) -> float:
    made = _made(core, source, n_tokens)
    return max(1e-4, _timed(lambda: core.client.gather([made], direct=True)))


def _made(core: Core, source: str, n_tokens: int) -> Any:
    where = core.address_of(source)
    made = core.client.submit(probe_segment, n_tokens, pure=False, workers=where)
    core.client.submit(touch, made, pure=False, workers=where).result()
    return made


def _cpu(core: Core, *workers: str) -> float:
    addresses = [address for name in workers for address in core.address_of(name)]
    return float(sum(core.client.run(cpu_seconds, workers=addresses).values()))


def _ids(n_tokens: int) -> bytes:
    return pack_ids(index % 200 for index in range(n_tokens))


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
