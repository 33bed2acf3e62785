"""Attention over a segmented cache, composed of parts.

Every fed token sees all segments and the earlier tail of its own branch in full, and its own span causally. Each of
these is one part; parts are merged by log-sum-exp. The query heads that share a K/V head are folded into rows, so K/V
are never repeated; the causal square takes them expanded at stride 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvlab.engine.parts import Part, merge, plain_part

if TYPE_CHECKING:
    from kvlab.engine.cache import SegmentLayer, Span


def attend(
    layer: SegmentLayer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention of one row of fed tokens.

    Parameters
    ----------
    query
        ``[1, heads, n, head_dim]``
    key, value
        ``[1, kv_heads, n, head_dim]`` of the same tokens; they are already in the tails.

    Returns
    -------
    ``[1, heads, n, head_dim]`` in the query's dtype.
    """
    _, heads, n, dim = query.shape
    kv_heads = key.shape[1]
    if n == 1 and layer.feed.is_step and query.dtype == torch.float32:
        return _lone_step(layer, query, scale)
    parts: list[Part] = []
    if layer.segments:
        folded = query.reshape(1, kv_heads, heads // kv_heads * n, dim)
        for segment_key, segment_value in layer.segments:
            out, lse = layer.feed.kernel(folded, segment_key, segment_value, scale)
            parts.append((out.reshape(1, heads, n, dim), lse.reshape(1, heads, n)))
    parts.append(_step(layer, query, scale) if layer.feed.is_step else _spans(layer, query, key, value, scale))
    return merge(parts)[0].to(query.dtype)


def _lone_step(layer: SegmentLayer, query: torch.Tensor, scale: float) -> torch.Tensor:
    """One token of one branch in fp32: scores of all pieces side by side, so that one softmax serves them all.

    With so few rows the scores are small, and this takes half the operations of merging parts.
    """
    _, heads, _, dim = query.shape
    width = layer.feed.width
    pieces = [(key[0], value[0]) for key, value in layer.segments]
    pieces.append((layer.tail_keys[0, :, :width], layer.tail_values[0, :, :width]))
    kv_heads = pieces[0][0].shape[0]
    rows = query.reshape(kv_heads, heads // kv_heads, dim) * scale
    scores = torch.cat([torch.bmm(rows, key.transpose(1, 2)) for key, _ in pieces], -1)
    shares = torch.softmax(scores, -1).split([key.shape[1] for key, _ in pieces], -1)
    out = torch.bmm(shares[0], pieces[0][1])
    for share, (_, value) in zip(shares[1:], pieces[1:], strict=True):
        out.baddbmm_(share, value)
    return out.reshape(1, heads, 1, dim)


def _step(layer: SegmentLayer, query: torch.Tensor, scale: float) -> Part:
    """One token a branch against its own tail, itself included."""
    feed = layer.feed
    _, heads, n, dim = query.shape
    keys, values = layer.tail_keys[:n, :, : feed.width], layer.tail_values[:n, :, : feed.width]
    kv_heads = keys.shape[1]
    folded = query[0].transpose(0, 1).reshape(n, kv_heads, heads // kv_heads, dim)
    if feed.visible is None:
        out, lse = feed.kernel(folded, keys, values, scale)
    else:
        out, lse = plain_part(folded, keys, values, scale, allowed=feed.visible)
    return out.reshape(n, heads, dim).transpose(0, 1)[None], lse.reshape(n, heads).transpose(0, 1)[None]


def _spans(layer: SegmentLayer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> Part:
    """Each span against the earlier tail of its branch and, causally, against itself."""
    outs, lses, offset = [], [], 0
    for span in layer.feed.spans:
        here = slice(offset, offset + span.count)
        out, lse = _one_span(layer, span, query[:, :, here], key[:, :, here], value[:, :, here], scale)
        outs.append(out)
        lses.append(lse)
        offset += span.count
    if len(outs) == 1:
        return outs[0], lses[0]
    return torch.cat(outs, 2), torch.cat(lses, 2)


def _one_span(
    layer: SegmentLayer, span: Span, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> Part:
    kernel = layer.feed.kernel
    _, heads, n, dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    grouped = query.reshape(kv_heads, group, n, dim).transpose(0, 1)
    out, lse = kernel(
        grouped, key.expand(group, kv_heads, n, dim), value.expand(group, kv_heads, n, dim), scale, causal=n > 1
    )
    square = out.transpose(0, 1).reshape(1, heads, n, dim), lse.transpose(0, 1).reshape(1, heads, n)
    if not span.start:
        return square
    row = slice(span.row, span.row + 1)
    folded = query.reshape(1, kv_heads, group * n, dim)
    out, lse = kernel(folded, layer.tail_keys[row, :, : span.start], layer.tail_values[row, :, : span.start], scale)
    return merge([square, (out.reshape(1, heads, n, dim), lse.reshape(1, heads, n))])
