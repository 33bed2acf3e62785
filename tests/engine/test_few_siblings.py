"""Batches of every small size decode as each branch alone does: small products of matrices have kernels of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvlab.engine.protocol import Branch
from kvlab.engine.torch_engine import TorchEngine
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids


@pytest.mark.parametrize("n_branches", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n_prompt", [1, 5, 22])
def test_a_small_batch_equals_each_branch_alone(tiny_model: Any, n_branches: int, n_prompt: int) -> None:
    engine = TorchEngine.from_model(tiny_model(), name="tiny")
    generator = torch.Generator().manual_seed(n_branches)

    def ids(n: int) -> bytes:
        return pack_ids(torch.randint(3, 300, (n,), generator=generator).tolist())

    past = engine.prefill(ids(166), [], engine.new_payload).payload
    branches = [Branch(ids(n_prompt), Sampling(6, branch=f"b{index}")) for index in range(n_branches)]
    alone = [engine.resume(branch, [past], engine.new_payload).generated for branch in branches]
    assert [one.generated for one in engine.decode_batch(branches, [past], engine.new_payload)] == alone


@pytest.mark.parametrize("prompts", [(600, 425), (1000, 24, 1), (1023, 2), (5, 1, 1, 1018)])
def test_a_packed_row_of_one_token_belongs_to_its_own_branch(tiny_model: Any, prompts: tuple[int, ...]) -> None:
    """Prefills are cut into rows of 1,024 tokens; the last row may hold a single one, of any branch."""
    engine = TorchEngine.from_model(tiny_model(max_position_embeddings=2048), name="tiny")
    generator = torch.Generator().manual_seed(3)

    def ids(n: int) -> bytes:
        return pack_ids(torch.randint(3, 300, (n,), generator=generator).tolist())

    past = engine.prefill(ids(50), [], engine.new_payload).payload
    branches = [Branch(ids(n), Sampling(3, branch=f"b{index}")) for index, n in enumerate(prompts)]
    together = engine.decode_batch(branches, [past], engine.new_payload)
    for branch, one in zip(branches, together, strict=True):
        alone = engine.resume(branch, [past], engine.new_payload)
        assert (one.last_logits - alone.last_logits).abs().max() < 1e-4
        assert (one.payload - alone.payload).abs().max() < 1e-4
