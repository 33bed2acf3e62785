"""Attention over one piece of K/V, with the log-sum-exp that lets pieces be merged exactly.

A *part* is ``(out, lse)``: ``out [B, H, Q, D]`` is softmax attention over that piece alone, ``lse [B, H, Q]`` (fp32) the
logarithm of the sum of its exponentiated scores. For disjoint pieces, attention over their union is the mean of the
outs weighted by ``exp(lse)``; the same identity as in FlashAttention (arXiv 2205.14135) and cascade inference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch

Part = tuple[torch.Tensor, torch.Tensor]

SCORES_AT_ONCE = 1 << 25
"""Scores the plain part holds in memory at a time (128 MiB in fp32); more queries go in blocks."""

CUDA_FLASH_MAX_HEAD_DIM = 256


class PartKernel(Protocol):
    """Computes one part."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *, causal: bool = False
    ) -> Part:
        """Attention of ``query`` over one piece; ``causal`` means a square, where query i sees columns 0..i."""
        ...


def plain_part(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    *,
    causal: bool = False,
    allowed: torch.Tensor | None = None,
) -> Part:
    """One part in plain math with fp32 accumulation; serves every device, and is the oracle of the others.

    Parameters
    ----------
    query, key, value
        ``[B, H, Q, D]``, ``[B, H, T, D]``, ``[B, H, T, D]``; T may be 0.
    scale
        Factor on the scores.
    causal
        Query i sees columns 0..i (top-left aligned); meant for squares.
    allowed
        Boolean, broadcastable to ``[B, H, Q, T]``: what may be seen. Hidden columns must still hold finite values.

    Returns
    -------
    ``out [B, H, Q, D]`` and ``lse [B, H, Q]`` in fp32. A row that may see nothing has out 0 and lse −inf.
    """
    n_queries, n_columns = query.shape[2], key.shape[2]
    block = max(1, SCORES_AT_ONCE // max(1, query.shape[0] * query.shape[1] * n_columns))
    if n_queries > block:
        pieces = []
        for start in range(0, n_queries, block):
            rows = slice(start, start + block)
            visible = allowed[:, :, rows] if allowed is not None and allowed.shape[2] > 1 else allowed
            if causal:
                below = _causal(n_queries, n_columns, query.device)[rows]
                visible = below if visible is None else visible & below
            pieces.append(plain_part(query[:, :, rows], key, value, scale, allowed=visible))
        return torch.cat([out for out, _ in pieces], 2), torch.cat([lse for _, lse in pieces], 2)

    scores = torch.matmul(query.float(), key.float().transpose(-1, -2)).mul_(scale)
    if causal:
        scores.masked_fill_(~_causal(n_queries, n_columns, query.device), -math.inf)
    if allowed is not None:
        scores.masked_fill_(~allowed, -math.inf)
    lse = torch.logsumexp(scores, -1)
    finite = lse.masked_fill(lse == -math.inf, 0.0)
    return torch.matmul(scores.sub_(finite.unsqueeze(-1)).exp_(), value.float()), lse


def cpu_flash_part(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *, causal: bool = False
) -> Part:
    """One part by torch's flash attention for CPU, which reads strided K/V where they lie.

    ``key`` must hold at least one column: the operator ends the process with SIGFPE on an empty one. It takes the last
    axis for dense without looking, so what is not dense there is copied first.
    """
    query, key, value = (one if one.stride(-1) == 1 else one.contiguous() for one in (query, key, value))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(  # noqa: SLF001  the public one hides lse
        query, key, value, 0.0, causal, attn_mask=None, scale=scale
    )
    return out, lse


def cuda_flash_part(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *, causal: bool = False
) -> Part:
    """One part by torch's flash attention for CUDA, fp16 and bf16 only; lse comes as ``[B, H, Q]`` fp32.

    Unverified on GPU: written from the operator's declaration. :func:`require_true_lse` checks it at load.
    """
    query, key, value = (one if one.stride(-1) == 1 else one.contiguous() for one in (query, key, value))
    flash = torch.ops.aten._scaled_dot_product_flash_attention.default  # noqa: SLF001  the public one hides lse
    result = flash(query, key, value, 0.0, causal, return_debug_mask=False, scale=scale)
    return result[0], result[1]


def part_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> PartKernel:
    """The fastest part that serves this device, dtype and head dimension."""
    if device.type == "cpu":
        return cpu_flash_part
    half = dtype in (torch.float16, torch.bfloat16)
    if device.type == "cuda" and half and head_dim % 8 == 0 and head_dim <= CUDA_FLASH_MAX_HEAD_DIM:
        return cuda_flash_part
    return plain_part


def merge(parts: Sequence[Part]) -> Part:
    """Attention over the union of disjoint pieces, in fp32. Rows that see nothing anywhere stay 0 with lse −inf."""
    if len(parts) == 1:
        return parts[0]
    lses = torch.stack([lse for _, lse in parts])
    total = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - total.masked_fill(total == -math.inf, 0.0)).unsqueeze(-1)
    merged = parts[0][0] * weights[0]
    for (out, _), weight in zip(parts[1:], weights[1:], strict=True):
        merged.addcmul_(out.to(merged.dtype), weight)
    return merged, total


def _causal(n_queries: int, n_columns: int, device: torch.device) -> torch.Tensor:
    return torch.ones(n_queries, n_columns, dtype=torch.bool, device=device).tril()
