"""The payload: one contiguous tensor ``[layers, 2, kv_heads, tokens, head_dim]`` a segment, K after RoPE and V."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch

from kvlab.engine.protocol import Allocate
from kvlab.errors import InvalidInput, StateMismatch
from kvlab.state.identity import KVConfig

TOKENS_AXIS = 3


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` as ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def payload_shape(config: KVConfig, n_tokens: int) -> tuple[int, int, int, int, int]:
    """Shape of the payload of ``n_tokens`` tokens."""
    return (config.layers, 2, config.kv_heads, n_tokens, config.head_dim)


def new_payload(config: KVConfig, n_tokens: int, device: torch.device) -> torch.Tensor:
    """Plain, uninitialised memory for ``n_tokens`` tokens."""
    return torch.empty(payload_shape(config, n_tokens), dtype=getattr(torch, config.dtype), device=device)


def shortened(payload: torch.Tensor, n_tokens: int) -> torch.Tensor:
    """The first ``n_tokens`` of a contiguous payload in host memory, moved together at the start of the same memory.

    ``payload`` is not readable any more after it, unless it has just so many tokens: then nothing is done.
    """
    if payload.shape[TOKENS_AXIS] == n_tokens:
        return payload
    layers, two, heads, n_before, dim = payload.shape
    size, start = payload.element_size() * dim, payload.data_ptr()
    for row in range(1, layers * two * heads):
        # Each row moves down, over what has been moved before it; memmove allows that.
        ctypes.memmove(start + row * n_tokens * size, start + row * n_before * size, n_tokens * size)
    short = payload.view(-1)[: layers * two * heads * n_tokens * dim].view(layers, two, heads, n_tokens, dim)
    storage = payload.untyped_storage()
    if storage.resizable():  # torch's own memory; whoever gave other memory takes its end back
        storage.resize_(short.nbytes)
    return short


def bytes_as_tensor(memory: memoryview, config: KVConfig, n_tokens: int) -> torch.Tensor:
    """The payload of ``n_tokens`` tokens that lies in ``memory`` (a whole, perhaps read-only, buffer). Copies nothing."""
    flat = torch.frombuffer(
        memory, dtype=getattr(torch, config.dtype), count=math.prod(payload_shape(config, n_tokens))
    )
    return flat.view(payload_shape(config, n_tokens))


def obtain(allocate: Allocate, n_tokens: int, config: KVConfig, device: torch.device) -> torch.Tensor:
    """The caller's memory for ``n_tokens`` tokens, checked.

    The caller's function runs outside inference mode, so that what it makes is an ordinary tensor.

    Raises
    ------
    InvalidInput
        When what it handed out does not have the payload's shape, dtype, layout or device.
    """
    with torch.inference_mode(mode=False):
        payload = allocate(n_tokens)
    wanted = payload_shape(config, n_tokens)
    if tuple(payload.shape) != wanted or dtype_name(payload.dtype) != config.dtype or not payload.is_contiguous():
        raise InvalidInput(
            f"allocate({n_tokens}) gave {tuple(payload.shape)} {dtype_name(payload.dtype)}, "
            f"wanted contiguous {wanted} {config.dtype}",
            hint="return engine.new_payload(n_tokens), or a view of that shape on your own memory",
        )
    if payload.device != device:
        raise InvalidInput(
            f"allocate({n_tokens}) gave memory on {payload.device}, the model is on {device}",
            hint=f"allocate on {device}",
        )
    return payload


def checked_past(past: Sequence[torch.Tensor], config: KVConfig, device: torch.device) -> tuple[torch.Tensor, ...]:
    """``past`` without its empty payloads, each checked to be readable as K/V of this model. Copies nothing.

    Raises
    ------
    StateMismatch
        For another dtype or other shapes than the model's; nothing is ever converted silently.
    InvalidInput
        For memory on another device, or whose last axis is not dense.
    """
    kept = []
    for i, payload in enumerate(past):
        shape = tuple(payload.shape)
        n_tokens = shape[TOKENS_AXIS] if len(shape) == 5 else 0
        differs = [
            name
            for name, same in (
                ("dtype", dtype_name(payload.dtype) == config.dtype),
                ("shape", len(shape) == 5 and shape == payload_shape(config, n_tokens)),
            )
            if not same
        ]
        if differs:
            raise StateMismatch(
                f"past payload {i} is {shape} {dtype_name(payload.dtype)}, the model's are "
                f"{(config.layers, 2, config.kv_heads, 'tokens', config.head_dim)} {config.dtype}",
                hint="use states of this model and dtype; conversion is never implicit",
                fields=differs,
            )
        if payload.device != device:
            raise InvalidInput(
                f"past payload {i} lies on {payload.device}, the model is on {device}",
                hint=f"move it to {device} first",
            )
        if n_tokens and payload.stride(-1) != 1:
            raise InvalidInput(
                f"past payload {i} has stride {payload.stride(-1)} along head_dim, it must be dense there",
                hint="pass the payload or a slice of it along tokens",
            )
        if n_tokens:
            kept.append(payload)
    return tuple(kept)
