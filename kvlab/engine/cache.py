"""The segmented cache: the state's segments as they lie, and one writable tail for each branch.

Nothing here copies or changes a segment. ``update`` writes the new K/V into the tails, returns the new K/V only, and
hangs the layer on the key it returns; the attention function finds it there. So nothing is global, and several threads
may run on one model. Layers never refer back to the cache: dropping the cache frees the caller's memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from kvlab.engine.attention import attend
from kvlab.engine.parts import PartKernel

LAYER = "_kvlab_layer"
"""Attribute of the returned key on which the cache layer rides to the attention function."""


@dataclass(frozen=True, slots=True)
class Span:
    """``count`` consecutive tokens of the branch in tail row ``row``, from tail column ``start`` on."""

    row: int
    start: int
    count: int


@dataclass(slots=True)
class Feed:
    """What the running forward pass feeds: one row of tokens, cut into spans. Shared by all layers of a cache.

    ``rows``, ``columns`` and ``visible`` serve a decode step (one token a branch, tail rows 0..n-1): where to write, and
    ``[n, 1, 1, width]`` which columns each branch sees; ``visible`` is None when all tails are equally long.
    """

    kernel: PartKernel
    spans: tuple[Span, ...] = ()
    is_step: bool = False
    width: int = 0
    rows: torch.Tensor | None = None
    columns: torch.Tensor | None = None
    visible: torch.Tensor | None = None


@dataclass(slots=True)
class Tails:
    """Writable K/V of branches that run together: ``buffer [rows, layers, 2, kv_heads, capacity, head_dim]``.

    Columns that were never written must be finite wherever branches of unequal length are read together.
    """

    buffer: torch.Tensor
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lengths = [0] * self.buffer.shape[0]


class SegmentLayer(CacheLayerMixin):
    """One layer's segments and tails."""

    is_sliding = False
    is_compileable = False
    is_croppable = False
    supports_early_init = False

    def __init__(self, index: int, past: Sequence[torch.Tensor], tails: Tails, feed: Feed, n_past: int) -> None:
        super().__init__()
        self.is_initialized = True
        self.index = index
        self.n_past = n_past
        self.feed = feed
        self.segments = tuple((payload[index, 0][None], payload[index, 1][None]) for payload in past)
        self.tails = tails

    @property
    def tail_keys(self) -> torch.Tensor:
        """``[rows, kv_heads, capacity, head_dim]``."""
        return self.tails.buffer[:, self.index, 0]

    @property
    def tail_values(self) -> torch.Tensor:
        """``[rows, kv_heads, capacity, head_dim]``."""
        return self.tails.buffer[:, self.index, 1]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: memory is there from the start."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002  transformers' signature
        **kwargs: Any,  # noqa: ARG002  as args
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[1, kv_heads, n, head_dim]`` new K/V into the tails; return them with this layer on the key."""
        keys, values, feed = self.tail_keys, self.tail_values, self.feed
        if feed.is_step and len(feed.spans) > 1:
            keys[feed.rows, :, feed.columns] = key_states[0].transpose(0, 1)
            values[feed.rows, :, feed.columns] = value_states[0].transpose(0, 1)
        else:
            offset = 0
            for span in feed.spans:
                here, there = slice(offset, offset + span.count), slice(span.start, span.start + span.count)
                keys[span.row, :, there].copy_(key_states[0, :, here])
                values[span.row, :, there].copy_(value_states[0, :, here])
                offset += span.count
        setattr(key_states, LAYER, self)
        return key_states, value_states

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
        """Attention of the fed tokens over everything this layer holds; see :func:`kvlab.engine.attention.attend`."""
        return attend(self, query, key, value, scale)

    def get_seq_length(self) -> int:
        """Tokens before those being fed (of the first branch; positions are always given explicitly)."""
        return self.n_past + (self.feed.spans[0].start if self.feed.spans else 0)

    def get_max_length(self) -> int:
        """−1: no maximum, in transformers' convention."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """K/V length and offset a mask would have; kvlab's attention takes none."""
        return self.get_seq_length() + query_length, 0


class SegmentedCache(Cache):
    """What a forward pass gets as its cache.

    Parameters
    ----------
    past
        Non-empty payloads of the path from the root, in order. Read where they lie.
    tails
        Where new K/V goes.
    kernel
        Computes the parts.
    """

    def __init__(self, past: Sequence[torch.Tensor], tails: Tails, kernel: PartKernel) -> None:
        self.n_past = sum(payload.shape[3] for payload in past)
        self.tails = tails
        self.feed = Feed(kernel)
        n_layers = tails.buffer.shape[1]
        super().__init__(layers=[SegmentLayer(i, past, tails, self.feed, self.n_past) for i in range(n_layers)])

    def begin(self, spans: Sequence[Span]) -> torch.Tensor:
        """Say what the next forward pass feeds. Returns the true positions ``[1, n]`` of its tokens."""
        feed, device = self.feed, self.tails.buffer.device
        feed.spans = tuple(spans)
        feed.is_step = all(span.count == 1 and span.row == i for i, span in enumerate(spans))
        if feed.is_step:
            starts = [span.start for span in spans]
            feed.width = max(starts) + 1
            feed.columns = torch.tensor(starts, device=device)
            feed.rows = torch.arange(len(starts), device=device)
            feed.visible = None
            if min(starts) != max(starts):
                seen = torch.arange(feed.width, device=device) <= feed.columns[:, None]
                feed.visible = seen[:, None, None]
            return (self.n_past + feed.columns)[None]
        positions = [torch.arange(span.start, span.start + span.count, device=device) for span in spans]
        return (self.n_past + torch.cat(positions))[None]

    def finish(self) -> None:
        """The pass is done: the fed tokens count as there."""
        for span in self.feed.spans:
            self.tails.lengths[span.row] = span.start + span.count
