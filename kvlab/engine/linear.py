"""Linear layers in fp32 on CPU, faster than torch's own for the shapes that language models have.

For one or two rows (a decode step) the product is a batch of two half matrices: it should run at the speed of reading the
weights, and MKL's product of one row with a transposed matrix reads at 10 GB/s on a machine that reads at 25, while the
batch reads at 18 to 27. From three rows on it is oneDNN's, which torch carries but does not take for fp32: 10 to 25%
less time than MKL's for a prefill, up to half for the vocabulary (AMD EPYC, torch 2.13, SmolLM2's shapes, one and two
threads). Neither copies the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

MOST_ROWS_IN_HALVES = 2
HALVES = 2


class CpuLinear(nn.Linear):
    """As :class:`torch.nn.Linear`, by the faster of two kernels."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """``[..., in_features]`` to ``[..., out_features]``."""
        n_rows = rows.numel() // self.in_features
        if n_rows == 0:
            return super().forward(rows)
        if n_rows > MOST_ROWS_IN_HALVES or self.out_features % HALVES:
            product: torch.Tensor = _onednn()(rows, self.weight, self.bias, "none", [], None)
            return product
        columns = rows.reshape(1, n_rows, self.in_features).transpose(1, 2).expand(HALVES, -1, -1)
        halves = self.weight.view(HALVES, self.out_features // HALVES, self.in_features)
        product = torch.bmm(halves, columns).view(self.out_features, n_rows)
        product = product.t().contiguous().view(*rows.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def speed_up_linears(model: nn.Module) -> int:
    """Let every plain linear layer of an fp32 model on CPU use these kernels; returns how many do.

    Changes the class of these layers, not their weights. Does nothing where torch has no oneDNN.
    """
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return 0
    changed = 0
    for module in model.modules():
        weight = module.weight if type(module) is nn.Linear else None
        if (
            weight is not None
            and weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and weight.is_contiguous()
        ):
            module.__class__ = CpuLinear
            changed += 1
    return changed


def _onednn() -> Callable[..., Any]:
    # What torch's own compiler calls for a linear layer with packed weights; it takes plain ones as well.
    kernel: Callable[..., Any] = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001
    return kernel
