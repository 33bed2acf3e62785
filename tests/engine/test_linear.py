"""The two kernels: equal to the usual product for any rows, and only where they fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kvlab.engine.linear import CpuLinear, speed_up_linears


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [10, 9])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,), (1, 2), (2, 1), (3,), (2, 5), (0,)])
def test_both_give_the_usual_product(shape, width, bias):
    generator = torch.Generator().manual_seed(0)
    usual = nn.Linear(24, width, bias=bias)
    halved = nn.Sequential(nn.Linear(24, width, bias=bias))
    halved[0].load_state_dict(usual.state_dict())
    assert speed_up_linears(halved) == 1
    rows = torch.randn(*shape, 24, generator=generator)
    torch.testing.assert_close(halved(rows), usual(rows), atol=1e-6, rtol=1e-6)
    assert halved(rows).is_contiguous()


def test_a_row_that_is_not_dense_gives_the_usual_product():
    usual = nn.Linear(8, 6)
    halved = nn.Sequential(nn.Linear(8, 6))
    halved[0].load_state_dict(usual.state_dict())
    speed_up_linears(halved)
    rows = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)).t()
    torch.testing.assert_close(halved(rows), usual(rows), atol=1e-6, rtol=1e-6)


def test_only_plain_fp32_layers_are_changed_and_weights_are_not():
    class Other(nn.Linear):
        pass

    layers = nn.ModuleList([nn.Linear(4, 6), nn.Linear(4, 5), Other(4, 6), nn.Linear(4, 6).bfloat16()])
    weight = layers[0].weight
    assert speed_up_linears(layers) == 2
    assert [type(layer) is CpuLinear for layer in layers] == [True, True, False, False]
    assert layers[0].weight is weight


def test_the_engine_decodes_with_it(engine_of):
    assert type(engine_of()._model.model.layers[0].mlp.up_proj) is CpuLinear
    assert type(engine_of(dtype=torch.bfloat16)._model.model.layers[0].mlp.up_proj) is nn.Linear
