"""Working memory of branches that run together: tails that grow, and rows that leave when a branch is finished."""

from __future__ import annotations

import torch

from kvlab.engine.cache import Tails
from kvlab.engine.payload import new_payload
from kvlab.engine.tail_width import first_width, next_width
from kvlab.state.identity import KVConfig


class SiblingTails(Tails):
    """Tails of several branches in one buffer, so that one step is one product over all of them.

    Live branches always occupy rows 0..n-1. Memory follows what the branches really reach; none can come to more than
    ``most`` tokens.
    """

    def __init__(self, config: KVConfig, n_rows: int, n_tokens: int, device: torch.device, *, most: int) -> None:
        self._most = most
        empty = new_payload(config, first_width(n_tokens, most), device)
        super().__init__(empty.new_zeros((n_rows, *empty.shape)))

    def reserve(self, n_tokens: int) -> None:
        """Make room for ``n_tokens`` columns in every row; grows by a half or to the most, keeping what is there."""
        capacity = self.buffer.shape[4]
        if n_tokens <= capacity:
            return
        n_rows, layers, two, kv_heads, _, head_dim = self.buffer.shape
        wider = next_width(n_tokens, capacity, self._most)
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
