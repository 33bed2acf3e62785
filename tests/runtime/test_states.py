"""Verbs of states, one at a time, against cold dense runs."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kvlab
from kvlab.errors import ContextTooLong, InvalidInput, MergeRefused, StateGone
from kvlab.store.events import Kind

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 4


def used_bytes(lab: Any) -> int:
    """What is reserved when workers have let go of all that they were told to."""
    lab.core.catalog.leaving.wait()
    found: int = lab.core.catalog.budget.used_bytes
    return found


def close_to_dense(state: Any, oracle: Any) -> None:
    ids = [*state.token_ids, *np.frombuffer(state.record.unfed, dtype="<i4").tolist()]
    dense = oracle.logits(ids)[-1].numpy()
    assert np.abs(state.next_logits() - dense).max() < 1e-4


def test_materialize_and_resume_equal_a_cold_dense_run(lab: Any, oracle: Any) -> None:
    state = lab.materialize(TEXT)
    close_to_dense(state, oracle)
    generation = state.resume("The planner", max_new_tokens=12)
    prompt = [*state.token_ids, *lab_ids(lab, "The planner")]
    assert list(generation.token_ids) == oracle.greedy(prompt, 12, lab.core.tokenizer.stop_ids)
    close_to_dense(generation.state, oracle)
    assert generation.n_prefilled == len(lab_ids(lab, "The planner"))
    assert generation.n_reused == state.n_tokens


def lab_ids(lab: Any, text: str) -> tuple[int, ...]:
    from kvlab.state.tokens import unpack_ids

    return unpack_ids(lab.core.tokenizer.text_ids(text))


def test_a_second_resume_feeds_the_unfed_token_first(lab: Any, oracle: Any) -> None:
    first = lab.materialize(TEXT).resume("One", max_new_tokens=5)
    second = first.state.resume(" two", max_new_tokens=5)
    prompt = [*first.state.token_ids, first.token_ids[-1], *lab_ids(lab, " two")]
    assert list(second.token_ids) == oracle.greedy(prompt, 5, lab.core.tokenizer.stop_ids)
    assert second.n_prefilled == 1 + len(lab_ids(lab, " two"))


def test_mapping_moves_no_byte_and_changes_no_logit(lab: Any, oracle: Any) -> None:
    state = lab.materialize(TEXT + "mapped", worker="worker-0")
    assert state.workers == ("worker-0",)
    state.transfer("worker-1")
    assert state.workers == ("worker-1",)
    generation = state.resume(" over there", max_new_tokens=6, worker="worker-1")
    assert generation.how == "in place"
    state.transfer("worker-0", keep=True)
    assert set(state.workers) == {"worker-0", "worker-1"}
    close_to_dense(state, oracle)
    close_to_dense(generation.state, oracle)


def test_a_transfer_as_frames_puts_the_payload_on_the_wire(frames_lab: Any, oracle: Any) -> None:
    from kvlab.store.events import Kind

    sent: list[Any] = []
    stop = frames_lab.core.hub.listen(
        lambda run, event: sent.append(event) if event.kind is Kind.SEGMENT_SENT else None
    )
    state = frames_lab.materialize(TEXT + "framed", worker="worker-0")
    state.transfer("worker-1", keep=True)
    assert set(state.workers) == {"worker-0", "worker-1"}
    generation = state.resume(" on", max_new_tokens=6, worker="worker-1")
    frames_lab.core.hub.settle()
    stop()
    recipes = {segment.recipe for segment in state.record.segments}
    assert sum(event.nbytes for event in sent if event.segment in recipes) == state.nbytes > 0
    assert {event.detail["how"] for event in sent if event.segment in recipes} == {"transfer"}
    close_to_dense(state, oracle)
    close_to_dense(generation.state, oracle)


def test_evicted_states_come_back_equal(lab: Any, oracle: Any) -> None:
    state = lab.materialize(TEXT + "evicted")
    generation = state.resume(" soon", max_new_tokens=8)
    before = generation.state.next_logits()
    own = generation.state.nbytes - state.nbytes
    assert generation.state.evict() == own
    assert generation.state.phase == "evicted"
    assert state.phase == "resident"
    state.evict()
    assert np.abs(generation.state.next_logits() - before).max() < 1e-4
    assert generation.state.phase == "resident"
    again = generation.state.resume(" and on", max_new_tokens=4)
    close_to_dense(again.state, oracle)


def test_an_evicted_state_whose_lineage_is_gone_says_so(lab: Any) -> None:
    state = lab.materialize(TEXT + "forgotten")
    state.evict(forget=True)
    with pytest.raises(StateGone, match="lineage"):
        state.resume("x")
    with pytest.raises(StateGone):
        state.next_logits()


def test_a_state_forgotten_while_its_action_waits_for_its_turn_costs_nothing(lab: Any) -> None:
    state = lab.materialize(TEXT + "forgotten too late", worker="worker-0")
    catalog = lab.core.catalog
    planned = threading.Event()
    stop = lab.core.hub.listen(lambda _, event: event.kind is Kind.ACTION_PLANNED and planned.set())
    used = used_bytes(lab) - state.nbytes
    with ThreadPoolExecutor(1) as pool:
        with catalog.preparing:
            waiting = pool.submit(state.resume, "on", max_new_tokens=2)
            assert planned.wait(20)
            time.sleep(0.2)
            state.evict(forget=True)
        with pytest.raises(StateGone, match="evicted"):
            waiting.result(30)
    stop()
    assert used_bytes(lab) == used
    assert not catalog.at_work


def test_forks_allocate_nothing_and_leave_their_parent_alone(lab: Any) -> None:
    state = lab.materialize(TEXT + "forked")
    used = used_bytes(lab)
    digest, n_tokens, nbytes = state.digest, state.n_tokens, state.nbytes
    forks = state.fork(1000)
    assert used_bytes(lab) == used
    assert {fork.digest for fork in forks} == {digest}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda fork: fork.resume(" go", max_new_tokens=3), forks[:8]))
    assert len({answer.token_ids for answer in answers}) == 1
    assert (state.digest, state.n_tokens, state.nbytes) == (digest, n_tokens, nbytes)


@pytest.mark.slow
def test_a_thousand_forks_of_a_long_state_take_no_byte_on_any_worker(make_lab: Any, wide_model_dir: str) -> None:
    with make_lab(model=wide_model_dir, kv_budget="2 GiB") as lab:
        whole = lab.materialize(TEXT * 26)
        long = whole.truncate(4096)
        before = lab.core.client.run(_held_bytes)
        forks = long.fork(1000)
        children = [fork.resume(" go", max_new_tokens=2, worker="worker-1") for fork in forks[:3]]
        after = lab.core.client.run(_held_bytes)
        assert len({fork.digest for fork in forks}) == 1
        assert whole.n_tokens > long.n_tokens == 4096
        grown = sum(child.state.nbytes - long.nbytes for child in children)
        mapped = sum(after.values()) - sum(before.values()) - grown
        assert mapped in (0, long.nbytes)
        assert sum(lab.core.client.run(_own_bytes).values()) <= sum(before.values()) + grown


def _held_bytes(dask_worker: Any) -> int:
    return dask_worker.plugins["kvlab"].memory.totals()[0]


def _own_bytes(dask_worker: Any) -> int:
    return dask_worker.plugins["kvlab"].memory.totals()[1]


def test_forks_draw_differently_and_repeatably(lab: Any) -> None:
    state = lab.materialize(TEXT + "sampled")
    draws = [fork.resume(" go", max_new_tokens=8, temperature=1.5, seed=7).token_ids for fork in state.fork(4)]
    assert len(set(draws)) > 1
    assert [f.resume(" go", max_new_tokens=8, temperature=1.5, seed=7).token_ids for f in state.fork(4)] == draws


@pytest.mark.parametrize("n_tokens", [1, 7, 40])
def test_truncate_equals_the_shorter_text(lab: Any, oracle: Any, n_tokens: int) -> None:
    state = lab.materialize(TEXT + "cut").resume(" here", max_new_tokens=4).state
    shorter = state.truncate(n_tokens)
    assert shorter.token_ids == state.token_ids[:n_tokens]
    close_to_dense(shorter, oracle)


def test_truncate_at_a_segment_boundary_shares_and_beyond_is_refused(lab: Any) -> None:
    base = lab.materialize(TEXT + "boundary")
    longer = base.resume(" and", max_new_tokens=4).state
    used = used_bytes(lab)
    assert longer.truncate(base.n_tokens).record.segments == base.record.segments
    assert used_bytes(lab) == used
    for wrong in (0, -1, longer.n_tokens + 1):
        with pytest.raises(InvalidInput, match="tokens"):
            longer.truncate(wrong)


def test_prefix_merge_is_the_longer_and_refuses_branches(lab: Any) -> None:
    base = lab.materialize(TEXT + "merged")
    left = base.resume(" left", max_new_tokens=3).state
    right = base.resume(" right", max_new_tokens=3).state
    merged = kvlab.merge([base, left], how="prefix")
    assert merged.digest == left.digest
    assert merged.lineage.parents == (base.id, left.id)
    with pytest.raises(MergeRefused, match="part at token"):
        kvlab.merge([left, right])
    with pytest.raises(MergeRefused, match="average"):
        kvlab.merge([left, right], how="average")  # type: ignore[arg-type]


def test_summary_merge_goes_on_from_the_shared_prefix(lab: Any, oracle: Any) -> None:
    base = lab.materialize(TEXT + "summed")
    branches = [base.resume(f" way {i}", max_new_tokens=4).state for i in range(2)]
    merged = kvlab.merge(branches, how="summary", max_new_tokens=6)
    assert merged.token_ids[: base.n_tokens] == base.token_ids
    assert merged.lineage.operator == "merge"
    close_to_dense(merged, oracle)


def test_save_and_load_equal(lab: Any, oracle: Any, tmp_path: Any) -> None:
    state = lab.materialize(TEXT + "saved").resume(" to disk", max_new_tokens=5).state
    folder = state.save(tmp_path / "state")
    before = state.next_logits()
    loaded = lab.load(folder, worker="worker-1")
    assert loaded.workers == ("worker-1",)
    with pytest.raises(InvalidInput, match="worker-9"):
        lab.load(folder, worker="worker-9")
    assert loaded.digest == state.digest
    assert loaded.record.unfed == state.record.unfed
    assert np.abs(loaded.next_logits() - before).max() < 1e-6
    answer, other = loaded.resume(" x", max_new_tokens=4), state.resume(" x", max_new_tokens=4)
    assert answer.token_ids == other.token_ids
    assert answer.n_reused == state.n_tokens
    with pytest.raises(InvalidInput, match="exists"):
        state.save(folder)


def test_materialize_reuses_what_is_resident_and_explain_tells_why(lab: Any) -> None:
    base = lab.materialize(TEXT.strip())
    longer = lab.materialize(TEXT.strip() + " and then some more")
    assert longer.record.segments[0] in base.record.segments
    same = lab.materialize(TEXT.strip())
    assert same.record.segments == base.record.segments
    told = lab.explain(TEXT.strip() + " and then some other")
    assert told.n_reusable >= base.n_tokens
    assert told.differs is not None
    nothing = lab.explain("Entirely different.")
    assert nothing.n_reusable == 0
    assert "no state" in str(nothing)


def test_states_go_with_their_last_handle(lab: Any) -> None:
    gc.collect()
    lab.core.catalog.reap()
    used = used_bytes(lab)
    state = lab.materialize("A passing thought that nobody keeps, long enough to weigh something.")
    child = state.resume(" on", max_new_tokens=3)
    assert used_bytes(lab) > used
    name = state.id
    del state
    gc.collect()
    assert name not in lab.states["state"].to_pylist()
    assert child.state.next_logits() is not None
    del child
    gc.collect()
    lab.core.catalog.reap()
    assert used_bytes(lab) == used


def test_the_table_of_states(lab: Any) -> None:
    state = lab.materialize(TEXT + "table", name="mine").pin()
    row = next(row for row in lab.states.to_pylist() if row["state"] == state.id)
    assert row["name"] == "mine"
    assert row["n_tokens"] == state.n_tokens
    assert row["pinned"]
    assert set(row["workers"]) == set(state.workers) != set()
    with pytest.raises(InvalidInput, match="pinned"):
        state.evict()
    state.unpin()
    assert repr(state).startswith(f"<state {state.id}")
    assert "<table" in state._repr_html_()


def test_clear_gives_everything_back(lab: Any) -> None:
    state = lab.materialize(TEXT + "cleared")
    assert lab.clear() > 0
    assert state.phase == "evicted"
    assert used_bytes(lab) == 0
    assert state.resume(" again", max_new_tokens=2).n_reused >= 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda lab, s: lab.materialize(""), InvalidInput),
        (lambda lab, s: lab.materialize("word " * 5000), ContextTooLong),
        (lambda lab, s: s.resume(""), InvalidInput),
        (lambda lab, s: s.resume("x", max_new_tokens=0), InvalidInput),
        (lambda lab, s: s.resume("x", max_new_tokens=100_000), ContextTooLong),
        (lambda lab, s: s.resume("x", temperature=-1), InvalidInput),
        (lambda lab, s: s.resume("x", chat=True), InvalidInput),
        (lambda lab, s: s.fork(0), InvalidInput),
        (lambda lab, s: s.fork("2"), InvalidInput),
        (lambda lab, s: s.fork(10**30), InvalidInput),
        (lambda lab, s: s.truncate(2.5), InvalidInput),
        (lambda lab, s: s.resume("x", temperature=None), InvalidInput),
        (lambda lab, s: s.resume("x", temperature=float("nan")), InvalidInput),
        (lambda lab, s: s.resume("\ud800"), InvalidInput),
        (lambda lab, s: lab.materialize("\ud800"), InvalidInput),
        (lambda lab, s: lab.materialize("x", name=5), InvalidInput),
        (lambda lab, s: lab.materialize("x", name="\ud800"), InvalidInput),
        (lambda lab, s: lab.materialize("x", name="two\nlines"), InvalidInput),
        (lambda lab, s: lab.load(None), InvalidInput),
        (lambda lab, s: s.save("\0"), InvalidInput),
        (lambda lab, s: lab.run("a workflow"), InvalidInput),
        (lambda lab, s: lab.compile(None), InvalidInput),
        (lambda lab, s: s.transfer("worker-9"), InvalidInput),
        (lambda lab, s: kvlab.merge([]), InvalidInput),
        (lambda lab, s: kvlab.merge([s, "text"]), InvalidInput),
        (lambda lab, s: lab.load("/nowhere/at/all"), kvlab.RunUnreadable),
    ],
)
def test_bad_input_is_refused_with_a_hint(lab: Any, call: Any, error: type[Exception]) -> None:
    state = lab.materialize(TEXT)
    with pytest.raises(error) as caught:
        call(lab, state)
    assert caught.value.hint
    assert state.phase == "resident"


def test_handles_do_not_pickle(lab: Any) -> None:
    import pickle

    with pytest.raises(InvalidInput, match="save"):
        pickle.dumps(lab.materialize(TEXT))


def test_chat_turns(lab: Any, oracle: Any) -> None:
    state = lab.materialize("A document.", chat=True)
    first = state.resume("What is it?", chat=True, max_new_tokens=6)
    second = first.state.resume("And then?", chat=True, max_new_tokens=6)
    close_to_dense(second.state, oracle)
    tokenizer = lab.core.tokenizer
    assert tokenizer.decode(second.state.record.path_ids).count("What is it?") == 1
