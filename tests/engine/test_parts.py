"""Parts and their merge: each kernel against plain math, and merged pieces against softmax over the whole."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from kvlab.engine import parts
from kvlab.engine.parts import cpu_flash_part, merge, part_kernel, plain_part

SCALE = 0.2


def random_qkv(n_queries, n_columns, *, heads=3, dim=16, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = (n_queries, n_columns, n_columns)
    return tuple((2 * torch.randn(2, heads, n, dim, generator=generator)).to(dtype) for n in sizes)


def softmax_attention(query, key, value, allowed=None):
    scores = query.double() @ key.double().transpose(-1, -2) * SCALE
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return torch.softmax(scores, -1) @ value.double(), torch.logsumexp(scores, -1)


@pytest.mark.parametrize("kernel", (plain_part, cpu_flash_part))
@pytest.mark.parametrize(("n_queries", "n_columns"), ((1, 1), (1, 700), (5, 3), (130, 600)))
def test_a_part_is_softmax_attention_with_its_log_sum_exp(kernel, n_queries, n_columns):
    query, key, value = random_qkv(n_queries, n_columns)
    out, lse = kernel(query, key, value, SCALE)
    true_out, true_lse = softmax_attention(query, key, value)
    torch.testing.assert_close(out.double(), true_out, atol=1e-5, rtol=0)
    torch.testing.assert_close(lse.double(), true_lse, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kernel", (plain_part, cpu_flash_part))
@pytest.mark.parametrize("n", (1, 2, 65, 200))
def test_a_causal_part_is_a_lower_triangle(kernel, n):
    query, key, value = random_qkv(n, n)
    out, lse = kernel(query, key, value, SCALE, causal=True)
    true_out, true_lse = softmax_attention(query, key, value, torch.ones(n, n, dtype=torch.bool).tril())
    torch.testing.assert_close(out.double(), true_out, atol=1e-5, rtol=0)
    torch.testing.assert_close(lse.double(), true_lse, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_flash_and_plain_agree_in_16_bits(dtype):
    query, key, value = random_qkv(20, 90, dtype=dtype)
    flash_out, flash_lse = cpu_flash_part(query, key, value, SCALE)
    plain_out, plain_lse = plain_part(query, key, value, SCALE)
    assert flash_lse.dtype == plain_lse.dtype == torch.float32
    torch.testing.assert_close(flash_out.float(), plain_out, atol=3e-2, rtol=2e-2)
    torch.testing.assert_close(flash_lse, plain_lse, atol=1e-3, rtol=0)


@pytest.mark.parametrize("cuts", ((0, 50), (0, 1, 50), (0, 7, 8, 30, 50)))
@pytest.mark.parametrize("kernel", (plain_part, cpu_flash_part))
def test_merged_pieces_are_attention_over_the_whole(kernel, cuts):
    query, key, value = random_qkv(9, 50)
    pieces = [kernel(query, key[:, :, a:b], value[:, :, a:b], SCALE) for a, b in itertools.pairwise(cuts)]
    out, lse = merge(pieces)
    true_out, true_lse = softmax_attention(query, key, value)
    torch.testing.assert_close(out.double(), true_out, atol=1e-5, rtol=0)
    torch.testing.assert_close(lse.double(), true_lse, atol=1e-5, rtol=0)


def test_a_row_that_sees_nothing_is_zero_with_minus_infinity():
    query, key, value = random_qkv(3, 4)
    allowed = torch.tensor([[True] * 4, [False] * 4, [True, False, False, False]])
    out, lse = plain_part(query, key, value, SCALE, allowed=allowed[None, None])
    assert torch.isneginf(lse[:, :, 1]).all()
    assert (out[:, :, 1] == 0).all()
    assert out.isfinite().all()
    torch.testing.assert_close(out[:, :, 2], value[:, :, 0])


def test_an_empty_piece_changes_nothing_and_two_of_them_stay_empty():
    query, key, value = random_qkv(3, 6)
    empty = plain_part(query, key[:, :, :0], value[:, :, :0], SCALE)
    whole = plain_part(query, key, value, SCALE)
    for pieces in ([empty, whole], [whole, empty], [empty, whole, empty]):
        out, lse = merge(pieces)
        torch.testing.assert_close(out, whole[0])
        torch.testing.assert_close(lse, whole[1])
    out, lse = merge([empty, empty])
    assert torch.isneginf(lse).all()
    assert (out == 0).all()


def test_far_apart_scores_merge_without_overflow():
    query, key, value = random_qkv(2, 6)
    pieces = [
        plain_part(query, 400 * key[:, :, :3], value[:, :, :3], 1.0),
        plain_part(query, key[:, :, 3:], value[:, :, 3:], 1.0),
    ]
    out, lse = merge(pieces)
    assert out.isfinite().all()
    assert lse.isfinite().all()


@pytest.mark.parametrize("causal", (False, True))
def test_blocks_of_queries_give_the_same(monkeypatch, causal):
    query, key, value = random_qkv(30, 30)
    allowed = torch.rand(1, 1, 30, 30, generator=torch.Generator().manual_seed(1)) > 0.3
    allowed[..., 0] = True
    whole = plain_part(query, key, value, SCALE, causal=causal, allowed=allowed)
    monkeypatch.setattr(parts, "SCORES_AT_ONCE", 7 * 2 * 3 * 30)
    out, lse = plain_part(query, key, value, SCALE, causal=causal, allowed=allowed)
    torch.testing.assert_close(out, whole[0])
    torch.testing.assert_close(lse, whole[1])


def test_strided_views_are_read_where_they_lie():
    query, key, value = random_qkv(4, 64)
    out, lse = cpu_flash_part(query, key[:, :, 10:40], value[:, :, 10:40], SCALE)
    copied = cpu_flash_part(query, key[:, :, 10:40].contiguous(), value[:, :, 10:40].contiguous(), SCALE)
    assert torch.equal(out, copied[0])
    assert torch.equal(lse, copied[1])


def test_an_axis_that_is_not_dense_is_not_misread():
    query, key, value = (one.transpose(2, 3).contiguous().transpose(2, 3) for one in random_qkv(5, 20))
    out, lse = cpu_flash_part(query, key, value, SCALE)
    true_out, true_lse = softmax_attention(query, key, value)
    torch.testing.assert_close(out.double(), true_out, atol=1e-5, rtol=0)
    torch.testing.assert_close(lse.double(), true_lse, atol=1e-5, rtol=0)


def test_the_kernel_follows_device_dtype_and_head_dimension():
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert part_kernel(cpu, torch.float32, 64) is cpu_flash_part
    assert part_kernel(cuda, torch.bfloat16, 128) is parts.cuda_flash_part
    assert part_kernel(cuda, torch.float32, 128) is plain_part
    assert part_kernel(cuda, torch.bfloat16, 260) is plain_part
    assert part_kernel(cuda, torch.float16, 20) is plain_part
