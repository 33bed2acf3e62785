"""Working memory of branches that run together: tails that grow, and rows that leave when a branch is finished."""

from __future__ import annotations

import torch

from kvlab.engine.cache import Tails
from kvlab.engine.payload import new_payload
from kvlab.state.identity import KVConfig

MARGIN_TOKENS = 64
"""Columns added beyond what is needed when tails grow, so that growing is rare."""


class SiblingTails(Tails):
    """Tails of several branches in one buffer, so that one step is one product over all of them.

    Live branches always occupy rows 0..n-1. Memory follows what the branches really reach, not their limits.
    """

    def __init__(self, config: KVConfig, n_rows: int, n_tokens: int, device: torch.device) -> None:
        empty = new_payload(config, n_tokens + MARGIN_TOKENS, device)
        super().__init__(empty.new_zeros((n_rows, *empty.shape)))

    def reserve(self, n_tokens: int) -> None:
        """Make room for ``n_tokens`` columns in every row; grows by at least a half, keeping what is there."""
        capacity = self.buffer.shape[4]
        if n_tokens <= capacity:
            return
        n_rows, layers, two, kv_heads, _, head_dim = self.buffer.shape
        wider = max(n_tokens + MARGIN_TOKENS, capacity + capacity // 2)
        grown = self.buffer.new_zeros((n_rows, layers, two, kv_heads, wider, head_dim))
        grown[..., :capacity, :] = self.buffer
        self.buffer = grown

    def remove(self, row: int) -> int:
        """Let the branch in ``row`` leave; the last live row moves there. Returns the row that moved."""
        last = len(self.lengths) - 1
        if row != last:
            length = self.lengths[last]
            self.buffer[row, ..., :length, :] = self.buffer[last, ..., :length, :]
            self.lengths[row] = length
        self.lengths.pop()
        return last
