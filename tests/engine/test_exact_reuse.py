"""Exact reuse: logits within 1e-4 and equal greedy tokens, against cold dense runs, for every promised family."""

from __future__ import annotations

import ctypes
import mmap

import pytest
import torch

from kvlab.engine.payload import bytes_as_tensor
from kvlab.engine.protocol import Branch
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids, unpack_ids

EXACT = 1e-4
FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
HEADS = ((4, 4), (4, 2), (4, 1), (8, 2))
CUTS = {"cold": (), "one": (31,), "two": (1, 40), "three": (13, 14, 50), "four": (8, 16, 33, 57)}
N_PROMPT, N_NEW = 64, 16


def settings(heads: tuple[int, int]) -> dict[str, int]:
    return {"num_attention_heads": heads[0], "num_key_value_heads": heads[1]}


def segments(engine, ids, cuts):
    past = []
    for start, end in zip((0, *cuts), cuts, strict=False):
        past.append(engine.prefill(pack_ids(ids[start:end]), past, engine.new_payload).payload)
    return past


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("heads", HEADS, ids=lambda heads: f"{heads[0]}q{heads[1]}kv")
@pytest.mark.parametrize("family", FAMILIES)
def test_resume_over_segments_equals_a_cold_dense_run(family, heads, cuts, engine_of, dense_of, tokens):
    engine, dense = engine_of(family, **settings(heads)), dense_of(family, **settings(heads))
    ids = tokens(N_PROMPT)
    past = segments(engine, ids, cuts)
    fed = ids[sum(p.shape[3] for p in past) :]
    made = engine.resume(Branch(pack_ids(fed), Sampling(N_NEW)), past, engine.new_payload)
    generated = list(unpack_ids(made.generated))
    torch.testing.assert_close(made.last_logits, dense.logits(ids)[-1], atol=EXACT, rtol=0)
    dense.require_greedy(ids, generated)
    assert made.finish == "length"
    assert list(unpack_ids(made.kv_ids)) == fed + generated[:-1]
    whole = torch.cat([*past, made.payload], 3)
    torch.testing.assert_close(whole, dense.payload(ids + generated[:-1]), atol=EXACT, rtol=0)


@pytest.mark.parametrize("chunk", (1, 7, 16, 63, 64, 1000))
@pytest.mark.parametrize("cut", (0, 20))
def test_chunk_size_does_not_matter(chunk, cut, engine_of, dense_of, tokens):
    engine, dense, ids = engine_of(), dense_of(), tokens(N_PROMPT)
    past = segments(engine, ids, (cut,)) if cut else []
    made = engine.prefill(pack_ids(ids[cut:]), past, engine.new_payload, chunk=chunk)
    torch.testing.assert_close(made.last_logits, dense.logits(ids)[-1], atol=EXACT, rtol=0)
    torch.testing.assert_close(made.payload, dense.payload(ids)[..., cut:, :], atol=EXACT, rtol=0)
    assert made.finish == "prefill"
    assert made.generated == b""


@pytest.mark.parametrize("kept", (1, 17, 39))
def test_a_truncated_view_of_a_segment_is_a_past(kept, engine_of, dense_of, tokens):
    engine, dense, ids = engine_of("qwen3"), dense_of("qwen3"), tokens(40)
    whole = engine.prefill(pack_ids(ids), [], engine.new_payload).payload
    other = ids[:kept] + tokens(9, seed=5)
    made = engine.resume(Branch(pack_ids(other[kept:]), Sampling(6)), [whole[..., :kept, :]], engine.new_payload)
    torch.testing.assert_close(made.last_logits, dense.logits(other)[-1], atol=EXACT, rtol=0)
    dense.require_greedy(other, unpack_ids(made.generated))


def test_one_segment_may_be_cut_in_several_views_with_empty_ones_between(engine_of, dense_of, tokens):
    engine, dense, ids = engine_of(), dense_of(), tokens(50)
    whole = engine.prefill(pack_ids(ids[:40]), [], engine.new_payload).payload
    past = [whole[..., :0, :], whole[..., :11, :], whole[..., 11:11, :], whole[..., 11:12, :], whole[..., 12:, :]]
    made = engine.prefill(pack_ids(ids[40:]), past, engine.new_payload)
    torch.testing.assert_close(made.last_logits, dense.logits(ids)[-1], atol=EXACT, rtol=0)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_the_past_may_be_read_only_memory(engine_of, dense_of, tokens):
    engine, dense, ids = engine_of(), dense_of(), tokens(48)
    first = engine.prefill(pack_ids(ids[:32]), [], engine.new_payload).payload
    area = mmap.mmap(-1, first.nbytes, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    area.write(first.contiguous().view(torch.uint8).numpy().tobytes())
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(first.nbytes), mmap.PROT_READ) == 0
    sealed = bytes_as_tensor(memoryview(area), engine.config, 32)
    branches = [Branch(pack_ids(ids[32 : 32 + n]), Sampling(5)) for n in (16, 3)]
    made = engine.resume(branches[0], [sealed], engine.new_payload)
    both = engine.decode_batch(branches, [sealed], engine.new_payload)
    torch.testing.assert_close(made.last_logits, dense.logits(ids)[-1], atol=EXACT, rtol=0)
    dense.require_greedy(ids, unpack_ids(both[0].generated))
    dense.require_greedy(ids[:35], unpack_ids(both[1].generated))


def test_segments_chain_over_many_turns(engine_of, dense_of, tokens):
    engine, dense = engine_of("qwen2"), dense_of("qwen2")
    past, path = [], []
    unfed: list[int] = []
    for turn in range(5):
        fed = unfed + tokens(7, seed=turn)
        made = engine.resume(Branch(pack_ids(fed), Sampling(9)), past, engine.new_payload)
        generated = list(unpack_ids(made.generated))
        dense.require_greedy(path + fed, generated)
        path += list(unpack_ids(made.kv_ids))
        past.append(made.payload)
        unfed = generated[-1:]
    assert sum(p.shape[3] for p in past) == len(path)
