"""The functions that run on workers. Each takes an order and the segments of a path, and makes one new thing.

A worker's task depends on the segments it reads, so Dask brings exactly those that the worker lacks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import get_worker

from kvlab.engine.protocol import Listener, Produced
from kvlab.errors import StateMismatch
from kvlab.runtime.engines import engine_for, on_model_thread
from kvlab.runtime.orders import Order
from kvlab.runtime.worker_plugin import KVWorker, plugin_of
from kvlab.state.tokens import n_ids, pack_ids, unpack_ids
from kvlab.store.events import Kind
from kvlab.store.spill import Spilled
from kvlab.store.spill import restore as read_spilled
from kvlab.store.spill import spill as write_spilled
from kvlab.transport.memory import PayloadAllocator
from kvlab.transport.segment import Bundle, Header, Segment, checksum

if TYPE_CHECKING:
    import torch

    from kvlab.engine.torch_engine import TorchEngine

_cancelled: set[str] = set()
_plugin: ContextVar[KVWorker] = ContextVar("kvlab plugin")


def model_work(task: Callable[..., Any]) -> Callable[..., Any]:
    """Run a task's body on the model thread of its process, where the worker's plugin is :data:`_plugin`."""

    @wraps(task)
    def run(*arguments: Any) -> Any:
        context = copy_context()
        context.run(_plugin.set, plugin_of(get_worker()))
        return on_model_thread(context.run, task, *arguments)

    return run


async def cancel(actions: Sequence[str]) -> None:
    """Ask this process to stop the given actions at their next chunk or token. Runs on the worker's event loop.

    They stay on the list: what is recomputed for an action shares its id, and ids are never used twice.
    """
    _cancelled.update(actions)


@model_work
def run_one(order: Order, *past: Segment) -> Segment:
    """Prefill, and generate if asked, on top of ``past``: one segment."""
    with _at_work(order, past) as work:
        branch = order.branches[0]
        payloads = [segment.tensor() for segment in past]
        if branch.sampling.max_new_tokens:
            produced = work.engine.resume(branch, payloads, work.allocate, work.listener, order.chunk)
        else:
            produced = work.engine.prefill(branch.ids, payloads, work.allocate, work.listener, order.chunk)
        return work.segment(0, produced)


@model_work
def run_siblings(order: Order, *past: Segment) -> Bundle:
    """All branches as one packed batch on one past: a bundle of their segments."""
    with _at_work(order, past) as work:
        payloads = [segment.tensor() for segment in past]
        produced = work.engine.decode_batch(order.branches, payloads, work.allocate, work.listener)
        return Bundle([work.segment(index, one) for index, one in enumerate(produced)])


@model_work
def run_text(order: Order) -> dict[str, Any]:
    """Textflow: prefill everything, generate, throw the K/V away, and return only the header."""
    with _at_work(order) as work:
        produced = work.engine.resume(order.branches[0], [], work.allocate, work.listener, order.chunk)
        return asdict(work.header(0, produced))


@model_work
def next_logits(order: Order, *past: Segment) -> list[float]:
    """Logits after the path plus the order's ids (read-only: nothing is kept)."""
    with _at_work(order, past) as work:
        payloads = [segment.tensor() for segment in past]
        produced = work.engine.prefill(order.branches[0].ids, payloads, work.allocate, work.listener, order.chunk)
        return [float(value) for value in produced.last_logits.tolist()]


def pick(bundle: Bundle, index: int) -> Segment:
    """One branch's segment out of a bundle, over the same memory."""
    return bundle.segments[index]


def meta(segment: Segment) -> dict[str, Any]:
    """The header of a segment as plain values."""
    if segment.failure:
        segment.tensor()  # raises: a header without its payload must not pass for the segment
    return {**asdict(segment.header), "nbytes": segment.nbytes, "worker": str(get_worker().name)}


@model_work
def cut(order: Order, n_tokens: int, segment: Segment) -> Segment:
    """The first ``n_tokens`` of a segment as a segment of its own: a copy, so that it does not pin the longer one."""
    with _at_work(order) as work:
        source = segment.tensor()
        payload = work.allocate(n_tokens)
        payload.copy_(source[:, :, :, :n_tokens])
        ids = pack_ids(unpack_ids(segment.header.kv_ids)[:n_tokens])
        now = time.time_ns()
        produced = Produced(payload, ids, b"", "prefill", payload.new_empty(0), 0.0, 0.0, now)
        return work.segment(0, produced, n_prompt=min(n_tokens, segment.header.n_prompt))


def touch(*segments: Segment) -> int:
    """Read one element of every segment where it now lies: what a transfer ends with. Returns the bytes."""
    return sum(segment.nbytes for segment in segments if segment.tensor().flatten()[0] is not None)


def segment_bytes(segment: Segment) -> int:
    """Bytes of a segment where it lies; reads none of them."""
    return segment.nbytes


def save(folder: str, metadata: dict[str, Any], *segments: Segment) -> str:
    """Write the path's payloads to ``folder`` on this worker's machine; the folder appears whole or not at all."""
    from kvlab.store.tensors import load_metadata, save_payloads

    if Path(folder).exists() and load_metadata(folder).get("saving") == metadata["saving"]:
        return folder  # by the worker that tried this before, and died before it could say so
    save_payloads(folder, [segment.tensor().cpu() for segment in segments], metadata)
    return folder


@model_work
def restore(order: Order, folder: str, index: int) -> Segment:
    """The ``index``-th payload of a saved state, digest checked, in this worker's memory."""
    from kvlab.store.tensors import load_metadata, load_payload

    with _at_work(order) as work:
        saved = load_metadata(folder)["segments"][index]
        stored = load_payload(folder, index)
        payload = work.allocate(stored.shape[3])
        payload.copy_(stored)
        ids = bytes.fromhex(saved["token_ids"])
        produced = Produced(payload, ids, b"", "prefill", payload.new_empty(0), 0.0, 0.0, time.time_ns())
        return work.segment(0, produced, n_prompt=int(saved["n_prompt"]), arrived="restored")


def spill(path: str, segment: Segment) -> Spilled:
    """Write a segment to a new file at ``path`` on this worker's machine. It stays where it lies."""
    return write_spilled(path, segment.tensor())


def unspill(recipe: str, spilled: Spilled, kv_ids: bytes, n_prompt: int) -> Segment:
    """A spilled segment in this worker's memory, digested as it is read. Neither the model nor its thread is needed."""
    started, plugin = time.time_ns(), plugin_of(get_worker())
    engine = plugin.engine
    import torch

    dtype = getattr(torch, engine.config.dtype)
    allocate = PayloadAllocator(
        engine.config.layers, engine.config.kv_heads, engine.config.head_dim, dtype, engine.device
    )
    payload, block = allocate.seal(read_spilled(recipe, spilled, allocate))
    ended = time.time_ns()
    timing = {"started_ns": started, "finished_ns": ended, "worker": plugin.worker_name}
    told = Header(
        recipe, tuple(payload.shape), engine.config.dtype, kv_ids, n_prompt, checksum=checksum(payload), timing=timing
    )
    return Segment(told, payload, block=block, arrived="restored", seconds=(ended - started) / 1e9)


class _Work:
    """One order being carried out: its engine, its memory, its voice."""

    def __init__(self, order: Order, plugin: KVWorker, engine: TorchEngine, past: Sequence[Segment]) -> None:
        self.order = order
        self.past = [
            {
                "recipe": s.header.recipe,
                "arrived": s.arrived,
                "seconds": s.seconds,
                "nbytes": s.nbytes,
                "made_ns": s.made_ns,
                "n_tokens": s.header.shape[3],
                "making_seconds": s.making_seconds,
            }
            for s in past
        ]
        self.plugin = plugin
        self.engine = engine
        self.started_ns = time.time_ns()
        config = engine.config
        import torch

        self._allocator = PayloadAllocator(
            config.layers, config.kv_heads, config.head_dim, getattr(torch, config.dtype), engine.device
        )
        self.listener = Listener(self._on_chunk, self._on_token, lambda: order.action in _cancelled)

    def allocate(self, n_tokens: int) -> torch.Tensor:
        """Payload memory, counted as held by this worker while the work lasts."""
        payload = self._allocator(n_tokens)
        self.plugin.memory.working(self.order.action, payload.nbytes)
        self.plugin.sample_memory(self.order.run)
        return payload

    def _on_chunk(self, done: int, total: int) -> None:
        self.plugin.emit(Kind.PREFILL_CHUNK, self.order, agent=self._who(), n_tokens=done, detail={"total": total})

    def _on_token(self, branch: int, token: int) -> None:
        agent = self.order.agents[branch]
        self.plugin.emit(Kind.TOKENS, self.order, agent=agent, n_tokens=1, detail={"ids": [token]})

    def _who(self) -> str:
        return ", ".join(self.order.agents)

    def header(self, index: int, produced: Produced) -> Header:
        """Header of a branch's result, timings included."""
        timing: dict[str, Any] = {
            "started_ns": self.started_ns,
            "first_token_ns": produced.first_token_at,
            "finished_ns": time.time_ns(),
            "prefill_seconds": produced.prefill_seconds,
            "decode_seconds": produced.decode_seconds,
            "threads": self.order.threads,
            "worker": self.plugin.worker_name,
            "past": self.past,
        }
        return Header(
            recipe=self.order.recipes[index],
            shape=tuple(produced.payload.shape),
            dtype=self.engine.config.dtype,
            kv_ids=produced.kv_ids,
            n_prompt=n_ids(self.order.branches[index].ids) if self.order.branches else n_ids(produced.kv_ids),
            generated=produced.generated,
            finish=produced.finish,
            timing=timing,
        )

    def segment(
        self, index: int, produced: Produced, *, n_prompt: int | None = None, arrived: str = "computed"
    ) -> Segment:
        """Seal a branch's payload and dress it as a segment."""
        payload, block = self._allocator.seal(produced.payload)
        header = replace(self.header(index, produced), checksum=checksum(payload))
        if n_prompt is not None:
            header = replace(header, n_prompt=n_prompt)
        return Segment(header, payload, block=block, arrived=arrived)


@contextmanager
def _at_work(order: Order, past: Sequence[Segment] = ()) -> Iterator[_Work]:
    import torch

    plugin = _plugin.get()
    engine = plugin.engine if order.beside is None else engine_for(order.beside)
    if engine.identity.weights != order.model.weights:
        raise StateMismatch(
            f"worker {plugin.worker_name} has loaded {engine.identity.name} with other weights than {order.model.name}",
            hint="start every worker of this scheduler with the lab's model",
            fields=["weights"],
        )
    torch.set_num_threads(order.threads)
    started = time.perf_counter()
    plugin.emit(
        Kind.ACTION_STARTED,
        order,
        agent=", ".join(order.agents),
        detail={"op": order.work, "threads": order.threads, "pid": os.getpid()},
    )
    try:
        yield _Work(order, plugin, engine, past)
    except BaseException as error:
        plugin.emit(
            Kind.ACTION_FAILED, order, agent=", ".join(order.agents), detail={"op": order.work, "error": str(error)}
        )
        raise
    finally:
        plugin.memory.done(order.action)
        plugin.sample_memory(order.run)
    plugin.emit(
        Kind.ACTION_FINISHED,
        order,
        agent=", ".join(order.agents),
        seconds=time.perf_counter() - started,
        detail={"op": order.work},
    )
