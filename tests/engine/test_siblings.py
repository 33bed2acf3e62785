"""Packed siblings: every row equals its own resume and the dense run; finished branches leave."""

from __future__ import annotations

import pytest
import torch

from kvlab.engine.protocol import Branch
from kvlab.engine.siblings import SiblingTails
from kvlab.engine.tail_width import MARGIN_TOKENS, working_tokens
from kvlab.state.identity import KVConfig, Sampling
from kvlab.state.tokens import n_ids, pack_ids, unpack_ids

EXACT = 1e-4
RAGGED = ((1, 12), (17, 1), (5, 30), (5, 0), (40, 7))


def ragged_branches(tokens):
    return [
        Branch(pack_ids(tokens(n, seed=10 + i)), Sampling(limit, branch=f"b/{i}"))
        for i, (n, limit) in enumerate(RAGGED)
    ]


@pytest.mark.parametrize("n_past", (0, 1, 33))
@pytest.mark.parametrize("family", ("llama", "qwen2", "qwen3", "mistral"))
def test_ragged_siblings_equal_dense_runs_in_every_row(family, n_past, engine_of, dense_of, tokens):
    engine, dense, shared = engine_of(family), dense_of(family), tokens(n_past)
    past = [engine.prefill(pack_ids(shared), [], engine.new_payload).payload] if n_past else []
    branches = ragged_branches(tokens)
    made = engine.decode_batch(branches, past, engine.new_payload)
    for branch, one in zip(branches, made, strict=True):
        prompt = shared + list(unpack_ids(branch.ids))
        generated = list(unpack_ids(one.generated))
        assert len(generated) == branch.sampling.max_new_tokens
        torch.testing.assert_close(one.last_logits, dense.logits(prompt)[-1], atol=EXACT, rtol=0)
        if generated:
            dense.require_greedy(prompt, generated)
        known = prompt + generated[:-1]
        assert list(unpack_ids(one.kv_ids)) == known[n_past:]
        torch.testing.assert_close(one.payload, dense.payload(known)[..., n_past:, :], atol=EXACT, rtol=0)


def test_each_sibling_equals_its_own_resume(engine_of, tokens):
    engine = engine_of("qwen3")
    past = [engine.prefill(pack_ids(tokens(25)), [], engine.new_payload).payload]
    branches = ragged_branches(tokens)
    together = engine.decode_batch(branches, past, engine.new_payload)
    for branch, one in zip(branches, together, strict=True):
        alone = engine.resume(branch, past, engine.new_payload)
        assert (one.generated, one.kv_ids, one.finish) == (alone.generated, alone.kv_ids, alone.finish)
        torch.testing.assert_close(one.payload, alone.payload, atol=EXACT, rtol=0)


def test_prompts_longer_than_a_chunk_are_cut_across_rows(engine_of, dense_of, tokens):
    engine = engine_of(max_position_embeddings=2048)
    dense = dense_of(max_position_embeddings=2048)
    prompts = [tokens(700, seed=1), tokens(700, seed=2), tokens(3, seed=3)]
    made = engine.decode_batch([Branch(pack_ids(p), Sampling(2)) for p in prompts], [], engine.new_payload)
    for prompt, one in zip(prompts, made, strict=True):
        torch.testing.assert_close(one.last_logits, dense.logits(prompt)[-1], atol=EXACT, rtol=0)
        dense.require_greedy(prompt, unpack_ids(one.generated))


def test_tails_grow_beyond_their_first_capacity(engine_of, dense_of, tokens):
    engine, dense = engine_of(), dense_of()
    n_new = 2 * MARGIN_TOKENS + 20
    branches = [Branch(pack_ids(tokens(4, seed=i)), Sampling(n_new - 30 * i)) for i in range(3)]
    for branch, one in zip(branches, engine.decode_batch(branches, [], engine.new_payload), strict=True):
        dense.require_greedy(unpack_ids(branch.ids), unpack_ids(one.generated))


def test_rows_move_when_a_branch_leaves():

    config = KVConfig(layers=1, kv_heads=1, head_dim=2, dtype="float32", rope="{}", max_positions=64)
    tails = SiblingTails(config, 3, 4, torch.device("cpu"), most=1000)
    for row in range(3):
        tails.buffer[row, ..., : row + 1, :] = row + 1
        tails.lengths[row] = row + 1
    assert tails.remove(0) == 2
    assert tails.lengths == [3, 2]
    assert tails.buffer[0, 0, 0, 0, :3, 0].tolist() == [3, 3, 3]
    tails.reserve(1000)
    assert tails.buffer.shape[4] >= 1000
    assert tails.buffer[1, 0, 1, 0, :3, 1].tolist() == [2, 2, 0]


@pytest.mark.parametrize("most", [4, 5, 60, 68, 69, 300, 1000])
def test_tails_never_take_more_than_is_said(most):
    config = KVConfig(layers=1, kv_heads=1, head_dim=2, dtype="float32", rope="{}", max_positions=64)
    tails = SiblingTails(config, 3, 4, torch.device("cpu"), most=most)
    peak = tails.buffer.shape[4]
    for n_tokens in range(5, most + 1):
        before = tails.buffer.shape[4]
        tails.reserve(n_tokens)
        after = tails.buffer.shape[4]
        assert n_tokens <= after <= most
        peak = max(peak, before + after if after > before else after)
    assert 3 * peak <= working_tokens([2, 4, 3], [most, most, 4]) <= 3 * 2 * most


def test_memory_is_asked_for_exactly_once_a_branch_and_exactly_its_tokens(engine_of, tokens):
    engine, asked = engine_of(), []

    def allocate(n_tokens):
        asked.append(n_tokens)
        return engine.new_payload(n_tokens)

    made = engine.decode_batch(ragged_branches(tokens), [], allocate)
    assert sorted(asked) == sorted(n_ids(one.kv_ids) for one in made)


def test_siblings_share_nothing_afterwards(engine_of, tokens):
    engine = engine_of()
    made = engine.decode_batch(ragged_branches(tokens), [], engine.new_payload)
    storages = {one.payload.untyped_storage().data_ptr() for one in made}
    assert len(storages) == len(made)
    assert all(one.payload.untyped_storage().nbytes() == one.payload.nbytes for one in made)


def test_tokens_stream_with_their_branch(engine_of, tokens):
    from kvlab.engine.protocol import Listener

    engine, heard, progress = engine_of(), {}, []
    listener = Listener(
        on_token=lambda i, token: heard.setdefault(i, []).append(token), on_chunk=lambda *at: progress.append(at)
    )
    branches = ragged_branches(tokens)
    made = engine.decode_batch(branches, [], engine.new_payload, listener)
    assert {i: tuple(ids) for i, ids in heard.items()} == {
        i: unpack_ids(one.generated) for i, one in enumerate(made) if one.generated
    }
    total = sum(n for n, _ in RAGGED)
    assert progress == [(total, total)]


def test_no_branches_make_nothing(engine_of):
    assert engine_of().decode_batch([], [], engine_of().new_payload) == []
