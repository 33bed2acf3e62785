"""What a call does and does not do: work counted, memory owned, parents unchanged, threads, cancellation, bad input."""

from __future__ import annotations

import gc
import hashlib
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from kvlab.engine.protocol import Branch, Listener
from kvlab.errors import Cancelled, ContextTooLong, InvalidInput, StateMismatch
from kvlab.state.identity import Sampling
from kvlab.state.tokens import n_ids, pack_ids, unpack_ids


def digest(payload: torch.Tensor) -> str:
    return hashlib.sha256(payload.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


@pytest.fixture
def fed(engine_of):
    """Tokens that each forward pass of the plain llama engine embeds, counted by a hook."""
    counts: list[int] = []
    embedding = engine_of()._model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda module, args, out: counts.append(args[0].numel()))
    yield counts
    hook.remove()


def test_identity_and_config_say_what_was_loaded(engine_of):
    engine, other = engine_of(), engine_of(seed=1)
    assert engine.identity.name == "tiny-llama"
    assert len(engine.identity.weights) == 64
    assert engine.identity.weights != other.identity.weights
    assert (engine.config.layers, engine.config.kv_heads, engine.config.head_dim) == (3, 2, 16)
    assert (engine.config.dtype, engine.config.max_positions) == ("float32", 1024)
    assert "rope_theta" in engine.config.rope
    assert engine.new_payload(5).shape == (3, 2, 2, 5, 16)


def test_prefill_forwards_exactly_its_ids(engine_of, tokens, fed):
    engine = engine_of()
    first = engine.prefill(pack_ids(tokens(50)), [], engine.new_payload, chunk=20)
    assert fed == [20, 20, 10]
    fed.clear()
    engine.prefill(pack_ids(tokens(7)), [first.payload], engine.new_payload)
    assert fed == [7]


def test_resume_forwards_its_ids_and_all_sampled_tokens_but_the_last(engine_of, tokens, fed):
    engine = engine_of()
    past = [engine.prefill(pack_ids(tokens(30)), [], engine.new_payload).payload]
    fed.clear()
    engine.resume(Branch(pack_ids(tokens(9)), Sampling(6)), past, engine.new_payload)
    assert fed == [9, 1, 1, 1, 1, 1]


def test_finished_siblings_are_not_fed(engine_of, tokens, fed):
    engine = engine_of()
    branches = [Branch(pack_ids(tokens(n)), Sampling(limit)) for n, limit in ((2, 1), (3, 4), (4, 2), (5, 0))]
    engine.decode_batch(branches, [], engine.new_payload)
    assert fed == [14, 2, 1, 1]


def test_a_stop_id_ends_a_branch_is_returned_and_never_fed(engine_of, tokens):
    engine, ids = engine_of(), tokens(12)
    free = unpack_ids(engine.resume(Branch(pack_ids(ids), Sampling(20)), [], engine.new_payload).generated)
    stop = free[5]
    n_until = free.index(stop) + 1
    asked = []

    def allocate(n_tokens):
        asked.append(n_tokens)
        return engine.new_payload(n_tokens)

    made = engine.resume(Branch(pack_ids(ids), Sampling(20), frozenset({stop})), [], allocate)
    assert made.finish == "stop"
    assert unpack_ids(made.generated) == free[:n_until]
    assert unpack_ids(made.kv_ids) == (*ids, *free[: n_until - 1])
    # Compacted where it lies: it never takes more memory than it was given.
    assert asked == [12 + 19]
    exact = engine.resume(Branch(pack_ids(ids), Sampling(n_until)), [], engine.new_payload).payload
    assert made.payload.is_contiguous()
    assert torch.equal(made.payload, exact)
    assert made.payload.shape[3] == n_ids(made.kv_ids)
    assert made.payload.untyped_storage().nbytes() == made.payload.nbytes


def test_a_full_generation_is_written_where_it_stays(engine_of, tokens):
    engine, given = engine_of(), []

    def allocate(n_tokens):
        given.append(engine.new_payload(n_tokens))
        return given[-1]

    made = engine.resume(Branch(pack_ids(tokens(12)), Sampling(20)), [], allocate)
    assert len(given) == 1
    assert made.payload is given[0]


@pytest.mark.parametrize("n_branches", (1, 3))
def test_no_reference_to_the_callers_memory_is_kept(engine_of, tokens, n_branches):
    engine = engine_of()
    gc.collect()
    gc.disable()
    try:
        past = [engine.prefill(pack_ids(tokens(20)), [], engine.new_payload).payload]
        branches = [Branch(pack_ids(tokens(4)), Sampling(5 + i)) for i in range(n_branches)]
        made = engine.decode_batch(branches, past, engine.new_payload)
        watched = [weakref.ref(one.payload) for one in made] + [weakref.ref(past[0])]
        del made, past
        assert [one() for one in watched] == [None] * len(watched)
    finally:
        gc.enable()


@pytest.mark.parametrize("n_children", (0, 1, 4))
def test_a_parent_is_the_same_after_concurrent_children(engine_of, tokens, n_children):
    engine = engine_of("qwen3")
    past = [engine.prefill(pack_ids(tokens(40)), [], engine.new_payload).payload]
    past.append(engine.prefill(pack_ids(tokens(11)), past, engine.new_payload).payload)
    before = [digest(payload) for payload in past]
    children = [Branch(pack_ids(tokens(5, seed=i)), Sampling(8)) for i in range(n_children)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda child: engine.resume(child, past, engine.new_payload), children))
    engine.decode_batch(children, past, engine.new_payload)
    assert [digest(payload) for payload in past] == before


def test_threads_on_one_engine_are_bit_equal(engine_of, tokens):
    engine, n_threads = engine_of(), 4
    past = [engine.prefill(pack_ids(tokens(60)), [], engine.new_payload).payload]
    barrier = Barrier(n_threads)

    def work(i):
        torch.set_num_threads(1)
        barrier.wait(timeout=30)
        made = []
        for j in range(3):
            branch = Branch(pack_ids(tokens(9 + (i + j) % 2, seed=1)), Sampling(12, temperature=0.8, branch="x"))
            made.append((9 + (i + j) % 2, engine.resume(branch, past, engine.new_payload)))
        return made

    with ThreadPoolExecutor(n_threads) as pool:
        results = [one for made in pool.map(work, range(n_threads)) for one in made]
    for n in (9, 10):
        same = [one for length, one in results if length == n]
        assert len(same) == 6
        for one in same[1:]:
            assert one.generated == same[0].generated
            assert torch.equal(one.payload, same[0].payload)
            assert torch.equal(one.last_logits, same[0].last_logits)


def test_progress_is_told_chunk_by_chunk_and_tokens_as_they_come(engine_of, tokens):
    engine, progress, heard = engine_of(), [], []
    listener = Listener(on_chunk=lambda *at: progress.append(at), on_token=lambda *at: heard.append(at))
    began = time.time_ns()
    branch = Branch(pack_ids(tokens(50)), Sampling(3))
    made = engine.resume(branch, [], engine.new_payload, listener, chunk=20)
    assert progress == [(20, 50), (40, 50), (50, 50)]
    assert heard == [(0, token) for token in unpack_ids(made.generated)]
    assert began < made.first_token_at < time.time_ns()
    assert made.prefill_seconds > 0
    assert made.decode_seconds > 0


@pytest.mark.parametrize("n_calls", (0, 1, 2, 4))
def test_cancelling_stops_at_the_next_chunk_or_step(engine_of, tokens, fed, n_calls):
    engine, calls = engine_of(), []

    def cancelled():
        calls.append(None)
        return len(calls) > n_calls

    branch = Branch(pack_ids(tokens(50)), Sampling(30))
    with pytest.raises(Cancelled):
        engine.resume(branch, [], engine.new_payload, Listener(cancelled=cancelled), chunk=20)
    assert len(fed) == n_calls


@pytest.mark.parametrize("ids", (b"", b"\0\0\0", pack_ids([320]), pack_ids([5, -1]), pack_ids([5, 100_000])))
def test_ids_the_model_does_not_have_are_refused(engine_of, ids):
    with pytest.raises(InvalidInput) as caught:
        engine_of().prefill(ids, [], engine_of().new_payload)
    assert caught.value.hint


@pytest.mark.parametrize(
    "sampling", (Sampling(-1), Sampling(1, temperature=-0.1), Sampling(1, temperature=float("nan")))
)
def test_sampling_that_cannot_be_meant_is_refused(engine_of, sampling):
    with pytest.raises(InvalidInput):
        engine_of().resume(Branch(pack_ids([5]), sampling), [], engine_of().new_payload)


def test_positions_may_be_used_to_the_last_and_not_beyond(engine_of, dense_of, tokens):
    settings = {"max_position_embeddings": 64}
    engine, dense = engine_of(**settings), dense_of(**settings)
    past = [engine.prefill(pack_ids(tokens(40)), [], engine.new_payload).payload]
    made = engine.resume(Branch(pack_ids(tokens(20, seed=1)), Sampling(5)), past, engine.new_payload)
    dense.require_greedy(tokens(40) + tokens(20, seed=1), unpack_ids(made.generated))
    with pytest.raises(ContextTooLong) as caught:
        engine.resume(Branch(pack_ids(tokens(20, seed=1)), Sampling(6)), past, engine.new_payload)
    assert caught.value.data == {"need": 65, "have": 64}


def test_a_past_of_another_dtype_or_shape_is_refused_by_field(engine_of, tokens):
    engine = engine_of()
    payload = engine.prefill(pack_ids(tokens(8)), [], engine.new_payload).payload
    for wrong, field in (
        (payload.bfloat16(), "dtype"),
        (payload[:2], "shape"),
        (payload[..., :8], "shape"),
        (payload[0], "shape"),
    ):
        with pytest.raises(StateMismatch) as caught:
            engine.prefill(pack_ids([5]), [wrong], engine.new_payload)
        assert caught.value.data["fields"] == [field]
    with pytest.raises(InvalidInput, match="stride"):
        engine.prefill(pack_ids([5]), [payload.transpose(3, 4).contiguous().transpose(3, 4)], engine.new_payload)


def test_memory_that_is_not_a_payload_is_refused(engine_of):
    engine = engine_of()
    for allocate in (
        lambda n: engine.new_payload(n + 1),
        lambda n: engine.new_payload(n).half(),
        lambda n: engine.new_payload(2 * n)[..., :n, :],
    ):
        with pytest.raises(InvalidInput, match="allocate"):
            engine.prefill(pack_ids([5, 6]), [], allocate)


def test_a_chunk_of_nothing_is_refused(engine_of):
    with pytest.raises(InvalidInput):
        engine_of().prefill(pack_ids([5]), [], engine_of().new_payload, chunk=0)


def test_allocated_memory_stays_an_ordinary_tensor(engine_of):
    made = engine_of().prefill(pack_ids([5, 6]), [], engine_of().new_payload)
    assert not made.payload.is_inference()
    made.payload.zero_()
