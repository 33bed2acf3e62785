"""Prefill: prompts cut into rows of at most ``chunk`` tokens, and one forward pass over such a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel

from kvlab.engine.cache import SegmentedCache, Span


def pack_rows(lengths: Sequence[int], chunk: int) -> Iterator[tuple[Span, ...]]:
    """Spans that feed prompts of these lengths one after the other, at most ``chunk`` tokens a row.

    Examples
    --------
    >>> [[(s.row, s.start, s.count) for s in spans] for spans in pack_rows([3, 2], chunk=4)]
    [[(0, 0, 3), (1, 0, 1)], [(1, 1, 1)]]
    """
    spans: list[Span] = []
    room = chunk
    for row, length in enumerate(lengths):
        start = 0
        while start < length:
            count = min(room, length - start)
            spans.append(Span(row, start, count))
            start += count
            room -= count
            if room == 0:
                yield tuple(spans)
                spans, room = [], chunk
    if spans:
        yield tuple(spans)


def forward_row(
    model: PreTrainedModel, cache: SegmentedCache, ids: torch.Tensor, spans: Sequence[Span], keep: Sequence[int]
) -> torch.Tensor:
    """Feed one row of tokens; their K/V goes into the cache's tails.

    Parameters
    ----------
    ids
        ``[n]`` int64, the spans' tokens one after the other.
    keep
        Which of the n tokens reach the head.

    Returns
    -------
    ``[len(keep), vocabulary]`` fp32 logits.
    """
    positions = cache.begin(spans)
    wanted = torch.tensor(list(keep), dtype=torch.long, device=ids.device)
    output = model(input_ids=ids[None], position_ids=positions, cache=cache, use_cache=True, logits_to_keep=wanted)
    cache.finish()
    return output.logits[0].float()
