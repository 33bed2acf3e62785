"""Measuring the cost model on the workers that will be used: a few seconds, once a machine and model.

The result is kept in the user's cache under the machine, the model and the versions it was measured with; it is measured
again when any of these differ or it is older than :data:`MAX_AGE_DAYS`.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import get_worker

from kvlab.config import cache_dir
from kvlab.cost.model import CostModel, Link, PrefillCurve
from kvlab.engine.protocol import Branch
from kvlab.runtime.core import Core
from kvlab.runtime.engines import on_model_thread
from kvlab.runtime.tasks import touch
from kvlab.runtime.worker_plugin import plugin_of
from kvlab.state.identity import Sampling, sha256_hex
from kvlab.state.tokens import pack_ids
from kvlab.transport.memory import PayloadAllocator
from kvlab.transport.segment import Header, Segment, checksum

if TYPE_CHECKING:
    from kvlab.engine.torch_engine import TorchEngine

FORMAT = 4
MAX_AGE_DAYS = 30
POINTS = ((32, 0), (128, 0), (448, 0), (32, 448), (128, 448))
"""(new tokens, past tokens) at which the prefill curve is measured; as far as the model has positions."""
DECODE_STEPS = 12
MAP_TOKENS = 16
LINK_TOKENS = (1, 2, 8, 64, 512)
"""Sizes of segments with which a link is measured, in this order, until one takes :data:`LONG_SECONDS`."""
LONG_SECONDS = 0.3
REPEATS = 2


def prefill_points(threads: int) -> dict[str, Any]:
    """On a worker: seconds of prefills at :data:`POINTS` (best of :data:`REPEATS`) and of one decode step."""
    measured: dict[str, Any] = on_model_thread(_measure, plugin_of(get_worker()).engine, threads)
    return measured


def _measure(engine: TorchEngine, threads: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    longest = max(64, min(448, engine.config.max_positions // 2))
    past = engine.prefill(_ids(longest), [], engine.new_payload)
    found = []
    for n_tokens, n_past in POINTS:
        if max(n_tokens, n_past) > longest:
            continue
        before = [past.payload[:, :, :, :n_past]] if n_past else []
        found.append((n_tokens, n_past, _best(lambda: engine.prefill(_ids(n_tokens), before, engine.new_payload))))  # noqa: B023
    branch = Branch(_ids(4), Sampling(DECODE_STEPS))
    decoded = engine.resume(branch, [past.payload], engine.new_payload)
    return {"points": found, "decode_seconds": decoded.decode_seconds / max(1, DECODE_STEPS - 1), "threads": threads}


def probe_segment(n_tokens: int) -> Segment:
    """On a worker: a segment of ``n_tokens`` zeros, to be moved."""
    import torch

    engine = plugin_of(get_worker()).engine
    config = engine.config
    dtype = getattr(torch, config.dtype)
    allocate = PayloadAllocator(config.layers, config.kv_heads, config.head_dim, dtype, engine.device)
    payload, block = allocate.seal(allocate(n_tokens))
    header = Header(f"probe-{n_tokens}", tuple(payload.shape), config.dtype, b"", 0, checksum=checksum(payload))
    return Segment(header, payload, block=block)


def nothing() -> str:
    """On a worker: an empty task."""
    return plugin_of(get_worker()).worker_name


def calibrate(core: Core, cores: int) -> CostModel:
    """Measure now, on the living workers. Takes a few seconds."""
    client, names = core.client, [worker.name for worker in core.living_workers()]
    first = core.address_of(names[0])
    measured = client.submit(prefill_points, cores, pure=False, workers=first).result()
    task = _median(lambda: client.submit(nothing, pure=False, workers=first).result(), 7)
    curve = PrefillCurve.fit(measured["points"], measured["threads"])
    if len(names) > 1 and (core.same_host == "frames" or len({core.workers[name].host for name in names[:2]}) > 1):
        link = _link(core, lambda n: _move_seconds(core, names[0], names[1], n) - task)
        crossing = link.t0
    else:
        # The client announces no probe, so what it gathers comes as frames, also where workers map from each other.
        link = _link(core, lambda n: _gather_seconds(core, names[0], n))
        crossing = max(_move_seconds(core, names[0], names[1], MAP_TOKENS) - task, 1e-4) if len(names) > 1 else 0.0
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    return CostModel(curve, measured["decode_seconds"], link, crossing, task, stamp)


def _link(core: Core, seconds_of: Callable[[int], float]) -> Link:
    """The line through the smallest and the largest probe; on a slow link the largest is a small one."""
    found: list[tuple[int, float]] = []
    for n_tokens in LINK_TOKENS:
        found.append((n_tokens * core.config.bytes_per_token, max(seconds_of(n_tokens), 1e-4)))
        if len(found) > 1 and found[-1][1] > LONG_SECONDS:
            break
    (small, t_small), (large, t_large) = found[0], found[-1]
    rate = (large - small) / max(t_large - t_small, 1e-4)
    return Link(max(t_small - small / rate, 1e-4), rate)


def calibrated(core: Core, cores: int) -> CostModel:
    """The stored cost model of this machine and model if it is fresh, else a new one, stored."""
    key = _key(core, cores)
    path = cache_dir() / "calibration" / f"{key}.json"
    stored = _read(path)
    if stored is not None:
        return stored
    with core.progress.task(f"Measuring prefill and links of {core.model.name} on this machine (once)"):
        cost = calibrate(core, cores)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"format": FORMAT, "cost": cost.as_dict()}, indent=2))
    draft.replace(path)
    return cost


def _key(core: Core, cores: int) -> str:
    import distributed
    import torch
    import transformers

    parts = [platform.node(), platform.machine(), platform.processor(), str(cores), str(FORMAT), core.same_host]
    parts.append(repr(core.pace))
    parts += [
        core.model.weights,
        core.config.dtype,
        torch.__version__,
        transformers.__version__,
        distributed.__version__,
    ]
    parts += sorted(f"{worker.host} {worker.device}" for worker in core.workers.values())
    return sha256_hex(*parts)[:24]


def _read(path: Path) -> CostModel | None:
    if not path.exists():
        return None
    try:
        stored = json.loads(path.read_text())
        cost = CostModel.from_dict(stored["cost"])
        age = datetime.now(UTC) - datetime.fromisoformat(cost.measured_at)
    except (ValueError, KeyError, TypeError):
        return None  # a damaged or foreign file is measured again, which replaces it
    return cost if age < timedelta(days=MAX_AGE_DAYS) else None


def _move_seconds(core: Core, source: str, target: str, n_tokens: int) -> float:
    seconds = []
    for _ in range(REPEATS):
        made = core.client.submit(probe_segment, n_tokens, pure=False, workers=core.address_of(source))
        core.client.submit(touch, made, pure=False, workers=core.address_of(source)).result()
        started = time.perf_counter()
        core.client.submit(touch, made, pure=False, workers=core.address_of(target)).result()
        seconds.append(time.perf_counter() - started)
        if seconds[-1] > LONG_SECONDS:
            break  # what is left of an accident does not show in so much
    return min(seconds)


def _gather_seconds(core: Core, source: str, n_tokens: int) -> float:
    seconds = []
    for _ in range(REPEATS):
        made = core.client.submit(probe_segment, n_tokens, pure=False, workers=core.address_of(source))
        core.client.submit(touch, made, pure=False, workers=core.address_of(source)).result()
        started = time.perf_counter()
        core.client.gather([made], direct=True)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _ids(n_tokens: int) -> bytes:
    return pack_ids(index % 200 for index in range(n_tokens))


def _best(work: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _median(work: Callable[[], Any], n: int) -> float:
    seconds = []
    for _ in range(n):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[n // 2]
