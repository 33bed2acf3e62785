"""The tasks of a hybrid edge: cut off what lies behind a token, and put it together with a front computed anew.

They copy memory and never compute, so they need neither the model nor its thread, and run beside it. numpy copies, and
not torch: torch would copy with a team of threads, and a second team next to the model's slows both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distributed import get_worker

from kvlab.state.tokens import BYTES_PER_ID
from kvlab.transport.memory import PayloadAllocator
from kvlab.transport.segment import Header, Segment, checksum

if TYPE_CHECKING:
    import torch


def behind(n_front: int, segment: Segment) -> Segment:
    """What a segment holds after its first ``n_front`` tokens, in memory of its own."""
    source = segment.tensor()
    allocate = _allocator(source)
    payload = allocate(source.shape[3] - n_front)
    _copy(payload, source[:, :, :, n_front:])
    sealed, block = allocate.seal(payload)
    told = segment.header
    header = Header(
        recipe=told.recipe,
        shape=tuple(sealed.shape),
        dtype=told.dtype,
        kv_ids=told.kv_ids[n_front * BYTES_PER_ID :],
        n_prompt=max(0, told.n_prompt - n_front),
        checksum=checksum(sealed),
    )
    return Segment(header, sealed, block=block)


def joined(recipe: str, front: Segment, back: Segment) -> Segment:
    """One segment of both: the front was computed on this worker, the back came from another one.

    Its timing tells what each half cost: ``prefill_seconds`` and ``again_tokens`` of the front, ``transfer_seconds``
    and ``moved_nbytes`` of the back.
    """
    first, rest = front.tensor(), back.tensor()
    allocate = _allocator(first)
    n_front = first.shape[3]
    payload = allocate(n_front + rest.shape[3])
    _copy(payload[:, :, :, :n_front], first)
    _copy(payload[:, :, :, n_front:], rest)
    sealed, block = allocate.seal(payload)
    timing: dict[str, Any] = {
        **front.header.timing,
        "finished_ns": time.time_ns(),
        "worker": str(get_worker().name),
        "again_tokens": n_front,
        "transfer_seconds": back.seconds,
        "moved_nbytes": back.nbytes if back.arrived == "transfer" else 0,
    }
    header = Header(
        recipe=recipe,
        shape=tuple(sealed.shape),
        dtype=front.header.dtype,
        kv_ids=front.header.kv_ids + back.header.kv_ids,
        n_prompt=front.header.n_prompt + back.header.n_prompt,
        checksum=checksum(sealed),
        timing=timing,
    )
    return Segment(header, sealed, block=block, arrived="hybrid")


def _allocator(like: torch.Tensor) -> PayloadAllocator:
    layers, _, kv_heads, _, head_dim = like.shape
    return PayloadAllocator(layers, kv_heads, head_dim, like.dtype, like.device)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    if target.device.type != "cpu":
        target.copy_(source)
        return
    import numpy as np
    import torch

    np.copyto(target.view(torch.uint8).numpy(), source.view(torch.uint8).numpy())
