"""The baseline is transformers itself: padded batches, kept rows and given caches agree with plain runs."""

from __future__ import annotations

import torch

from kvlab.engine.dense import DenseModel, shallow_copy
from kvlab.state.tokens import pack_ids


def test_a_padded_batch_generates_what_each_prompt_alone_does(tiny_model, tokens):
    dense, shared = DenseModel(tiny_model()), tokens(20)
    prompts = [tokens(n, seed=n) for n in (1, 6, 9)]
    _, cache = dense.prefill(shared)
    alone = [dense.generate([prompt], shallow_copy(cache), 8)[0] for prompt in prompts]
    repeated = shallow_copy(cache)
    repeated.batch_repeat_interleave(3)
    assert dense.generate(prompts, repeated, 8) == alone
    assert cache.get_seq_length() == 20
    assert cache.layers[0].keys.shape[0] == 1


def test_a_cache_made_of_a_payload_goes_on_as_the_grown_one(tiny_model, engine_of, tokens):
    dense, engine, ids = DenseModel(tiny_model()), engine_of(), tokens(30)
    _, grown = dense.prefill(ids)
    made = engine.prefill(pack_ids(ids), [], engine.new_payload)
    assert dense.generate([[5]], dense.cache_of(made.payload), 6) == dense.generate([[5]], grown, 6)


def test_engine_logits_are_the_dense_rows_and_keep_nothing(tiny_model, engine_of, tokens):
    dense, engine, ids = DenseModel(tiny_model()), engine_of(), tokens(30)
    truth, _ = dense.prefill(ids, keep=range(18, 30))
    past = [engine.prefill(pack_ids(ids[:18]), [], engine.new_payload).payload]
    before = past[0].clone()
    torch.testing.assert_close(engine.logits(pack_ids(ids[18:]), past), truth, atol=1e-4, rtol=0)
    assert torch.equal(past[0], before)
    torch.testing.assert_close(engine.logits(pack_ids(ids), [])[18:], truth, atol=1e-4, rtol=0)


def test_in_fp32_keeps_the_rounded_weights(tiny_model):
    exact = DenseModel(tiny_model(dtype=torch.bfloat16)).in_fp32()
    logits, _ = exact.prefill([5, 6, 7])
    rounded, _ = DenseModel(tiny_model(dtype=torch.bfloat16)).prefill([5, 6, 7])
    assert 0 < float((logits - rounded).abs().max()) < 1.0
