"""bf16: the error against fp32 is at most 1.5 times that of transformers' own SDPA."""

from __future__ import annotations

import pytest
import torch

from kvlab.engine.protocol import Branch
from kvlab.engine.torch_engine import TorchEngine
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
N_PROMPTS, N_TOKENS = 6, 80


@pytest.mark.parametrize("family", FAMILIES)
def test_error_against_fp32_is_bounded_by_sdpas(family, tiny_model, dense_of, tokens):
    exact = tiny_model(family, dtype=torch.bfloat16).float()
    rounded = dense_of(family, dtype=torch.bfloat16)
    engine = TorchEngine.from_model(tiny_model(family, dtype=torch.bfloat16), name=family)
    ours, theirs = 0.0, 0.0
    for seed in range(N_PROMPTS):
        ids = tokens(N_TOKENS, seed=seed)
        truth = exact(torch.tensor([ids])).logits[0].detach()
        theirs += float((rounded.logits(ids) - truth)[7::8].abs().max())
        past, off = [], 0.0
        for start in range(0, N_TOKENS, 8):
            made = engine.prefill(pack_ids(ids[start : start + 8]), past, engine.new_payload, chunk=8)
            off = max(off, float((made.last_logits - truth[start + 7]).abs().max()))
            past.append(made.payload)
        ours += off
    assert 0 < ours <= 1.5 * theirs


def test_siblings_run_in_bf16_with_ragged_tails(tiny_model, tokens):
    exact = tiny_model(dtype=torch.bfloat16).float()
    engine = TorchEngine.from_model(tiny_model(dtype=torch.bfloat16), name="bf16")
    branches = [Branch(pack_ids(tokens(n, seed=n)), Sampling(9)) for n in (3, 11)]
    for branch, made in zip(branches, engine.decode_batch(branches, [], engine.new_payload), strict=True):
        assert made.payload.dtype == torch.bfloat16
        ids = torch.frombuffer(bytearray(branch.ids + made.generated), dtype=torch.int32).long()
        logits = exact(ids[None]).logits[0, len(branch.ids) // 4 - 1 : -1].detach()
        chosen = ids[len(branch.ids) // 4 :]
        assert float((logits.max(-1).values - logits.gather(1, chosen[:, None])[:, 0]).max()) < 0.5
