"""Draws depend on (seed, branch, position) alone, and follow the softmax."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from kvlab.engine.protocol import Branch
from kvlab.engine.sampling import draw, gumbel_noise
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids, unpack_ids


def branches_of(tokens):
    return [
        Branch(pack_ids(tokens(3 + 2 * i, seed=i)), Sampling(6 + i, temperature=0.9, seed=7, branch=f"agent-{i}/0"))
        for i in range(5)
    ]


def test_batching_and_order_do_not_change_what_is_drawn(engine_of, tokens):
    engine = engine_of("qwen3")
    past = [engine.prefill(pack_ids(tokens(20)), [], engine.new_payload).payload]
    branches = branches_of(tokens)
    alone = {b.sampling.branch: engine.resume(b, past, engine.new_payload).generated for b in branches}
    for order in range(4):
        shuffled = list(branches)
        random.Random(order).shuffle(shuffled)
        together = engine.decode_batch(shuffled, past, engine.new_payload)
        assert {b.sampling.branch: one.generated for b, one in zip(shuffled, together, strict=True)} == alone
    pair = engine.decode_batch(branches[3:], past, engine.new_payload)
    assert pair[0].generated == alone["agent-3/0"]


def test_going_on_later_draws_what_going_on_at_once_would(engine_of, tokens):
    engine, ids = engine_of(), tokens(15)
    sampling = Sampling(12, temperature=1.0, seed=3, branch="writer/0")
    whole = unpack_ids(engine.resume(Branch(pack_ids(ids), sampling), [], engine.new_payload).generated)
    begun = engine.resume(Branch(pack_ids(ids), Sampling(5, 1.0, 3, "writer/0")), [], engine.new_payload)
    unfed = unpack_ids(begun.generated)[-1:]
    rest = engine.resume(Branch(pack_ids(unfed), Sampling(7, 1.0, 3, "writer/0")), [begun.payload], engine.new_payload)
    assert unpack_ids(begun.generated) + unpack_ids(rest.generated) == whole


def test_seed_and_branch_each_change_the_draw(engine_of, tokens):
    engine, ids = engine_of(), pack_ids(tokens(15))
    made = {
        engine.resume(Branch(ids, Sampling(12, 1.0, seed, branch)), [], engine.new_payload).generated
        for seed in (0, 1)
        for branch in ("a/0", "a/1")
    }
    assert len(made) == 4


def test_five_samples_are_five_branches(engine_of, tokens):
    engine, ids = engine_of(), pack_ids(tokens(15))
    branches = [Branch(ids, Sampling(12, 1.0, 0, f"poet/{i}")) for i in range(5)]
    assert len({one.generated for one in engine.decode_batch(branches, [], engine.new_payload)}) == 5


def test_noise_is_keyed_by_each_of_its_arguments():
    base = gumbel_noise(1, "a", 5, 64)
    assert np.array_equal(base, gumbel_noise(1, "a", 5, 64))
    for other in (gumbel_noise(2, "a", 5, 64), gumbel_noise(1, "b", 5, 64), gumbel_noise(1, "a", 6, 64)):
        assert not np.intersect1d(base, other).size


def test_noise_is_the_same_on_every_machine_and_version():
    assert gumbel_noise(7, "reviewer-1/0", 123, 2).tolist() == pytest.approx(
        [0.14541226013725697, 0.6002143549156596], abs=1e-12
    )


@pytest.mark.parametrize("temperature", (0.5, 1.0, 2.0))
def test_draws_follow_the_softmax(temperature):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -4.0])
    n = 4000
    counts = torch.zeros(5)
    for position in range(n):
        counts[draw(logits, Sampling(1, temperature, seed=11, branch="x"), position)] += 1
    expected = torch.softmax(logits / temperature, 0) * n
    assert float(((counts - expected) ** 2 / expected).sum()) < 18.5  # χ² with 4 degrees of freedom, p = 0.001


def test_temperature_zero_is_greedy():
    logits = torch.tensor([0.0, 3.0, 2.9])
    assert {draw(logits, Sampling(1, seed=seed), 4) for seed in range(20)} == {1}
