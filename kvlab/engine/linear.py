"""Linear layers for one or two rows in fp32 on CPU: the product in two halves.

A decode step multiplies one row by every weight, so it should run at the speed of reading them. MKL's product of one
row with a transposed matrix reads at 10 GB/s on a machine that reads at 25, on one thread or two; the same product as a
batch of two half matrices reads at 18 and 27 GB/s (AMD EPYC, torch 2.13, SmolLM2's shapes). It takes no copy of the
weights. From three rows on it gains nothing for every shape, so more rows go the usual way.
"""

from __future__ import annotations

import torch
from torch import nn

MOST_ROWS = 2
HALVES = 2


class HalvedLinear(nn.Linear):
    """As :class:`torch.nn.Linear`; at most two rows are multiplied by the halves of the weight as one batch."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """``[..., in_features]`` to ``[..., out_features]``."""
        n_rows = rows.numel() // self.in_features
        if n_rows > MOST_ROWS or n_rows == 0:
            return super().forward(rows)
        columns = rows.reshape(1, n_rows, self.in_features).transpose(1, 2).expand(HALVES, -1, -1)
        halves = self.weight.view(HALVES, self.out_features // HALVES, self.in_features)
        product = torch.bmm(halves, columns).view(self.out_features, n_rows)
        product = product.t().contiguous().view(*rows.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def halve_linears(model: nn.Module) -> int:
    """Let every plain linear layer of an fp32 model on CPU multiply in halves; returns how many do.

    Changes the class of these layers, not their weights.
    """
    changed = 0
    for module in model.modules():
        if type(module) is not nn.Linear:
            continue
        weight = module.weight
        fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous()
        if fits and module.out_features % HALVES == 0:
            module.__class__ = HalvedLinear
            changed += 1
    return changed
