"""Decisions in small worlds whose best answer is known, and what holds in every world."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.cost.decide import Edge, Piece, View, WorkerView, alternatives_for, decide
from kvlab.cost.model import CostModel, Link, PrefillCurve

# One millisecond a token, 10 ms a task, 2 ms to map, a link of 1 MB/s: a token of 1,000 bytes moves as fast as it prefills.
COST = CostModel(PrefillCurve(0.0, 1e-3, 0.0, 1), 0.01, Link(0.0, 1e6), 0.002, 0.010)
NBYTES = 1000
PATH = tuple(Piece(recipe, n, n * NBYTES) for recipe, n in (("doc", 100), ("plan", 20), ("review", 10)))
RECIPES = [piece.recipe for piece in PATH]
ORDER = ["in place", "map", "transfer", "recompute"]


def edge(path: tuple[Piece, ...] = PATH, new: int = 5) -> Edge:
    return Edge("planner→editor", "planner", "editor", path, new)


def worker(name: str, *resident: str, host: str = "h", queue: float = 0.0, threads: int = 1) -> WorkerView:
    return WorkerView(name, host, frozenset(resident), queue, threads)


def with_link(rate: float, t0: float = 0.0) -> CostModel:
    return CostModel(COST.prefill, COST.decode_seconds, Link(t0, rate), COST.map_seconds, COST.task_seconds)


def choice(view: View, path: tuple[Piece, ...] = PATH) -> tuple[str, str, float]:
    chosen = decide(edge(path), view).chosen
    return chosen.how, chosen.worker, pytest.approx(chosen.seconds)


def test_where_the_state_lies_costs_only_the_task_and_the_new_tokens() -> None:
    decision = decide(edge(), View((worker("a", *RECIPES), worker("b")), COST))
    assert (decision.chosen.how, decision.chosen.worker) == ("in place", "a")
    assert decision.chosen.terms == pytest.approx({"queue": 0, "overhead": 0.010, "resume": 0.005})
    assert decision.reason == "130 tokens are already on a: 15 ms against 0.18 s for recompute on a (predicted)"


@pytest.mark.parametrize(
    ("busy", "how", "name"), [(0.0, "in place", "a"), (0.001, "in place", "a"), (0.003, "map", "b"), (9.0, "map", "b")]
)
def test_a_busy_worker_loses_when_its_queue_is_longer_than_a_mapping(busy: float, how: str, name: str) -> None:
    view = View((worker("a", *RECIPES, queue=busy), worker("b")), COST)
    assert choice(view)[:2] == (how, name)
    in_place = next(a for a in alternatives_for(edge(), view) if a.how == "in place")
    assert in_place.terms["queue"] == busy


def test_between_hosts_bytes_move_and_nothing_is_mapped() -> None:
    view = View((worker("a", *RECIPES, queue=9, host="one"), worker("b", host="two")), with_link(1e7))
    assert choice(view) == ("transfer", "b", 0.010 + 0.013 + 0.005)
    assert {a.how for a in alternatives_for(edge(), view)} == {"in place", "transfer", "recompute"}
    moved = decide(edge(), view).chosen
    assert (moved.nbytes, moved.missing_tokens) == (130_000, 130)


def test_frames_on_one_host_are_a_transfer() -> None:
    view = View((worker("a", *RECIPES, queue=9), worker("b")), with_link(1e7), mappable=False)
    assert choice(view)[:2] == ("transfer", "b")


@pytest.mark.parametrize(
    ("rate", "how"), [(2e6, "transfer"), (1e6, "transfer"), (0.5e6, "recompute"), (1e3, "recompute")]
)
def test_a_slow_link_is_beaten_by_prefilling_again(rate: float, how: str) -> None:
    """Moving 130 kB against 0.13 s of prefill and three more tasks of 10 ms: even at 0.8125 MB/s."""
    view = View((worker("a", *RECIPES, queue=9, host="one"), worker("b", host="two")), with_link(rate))
    assert choice(view)[:2] == (how, "b")


def test_the_break_even_of_a_link_is_where_both_cost_the_same() -> None:
    even = 130_000 / 0.16
    far = (worker("a", *RECIPES, queue=9, host="one"), worker("b", host="two"))
    assert choice(View(far, with_link(even * 1.001)))[0] == "transfer"
    assert choice(View(far, with_link(even * 0.999)))[0] == "recompute"


def test_only_what_is_missing_moves() -> None:
    view = View((worker("a", *RECIPES, queue=9, host="one"), worker("b", "doc", host="two")), with_link(1e7))
    moved = decide(edge(), view).chosen
    assert (moved.how, moved.worker, moved.nbytes, moved.missing_tokens) == ("transfer", "b", 30_000, 30)


def test_recompute_starts_from_the_nearest_resident_ancestor() -> None:
    view = View((worker("a", *RECIPES, queue=9, host="one"), worker("b", "doc", host="two")), with_link(1e3))
    chosen = decide(edge(), view).chosen
    assert (chosen.how, chosen.worker, chosen.missing_tokens) == ("recompute", "b", 30)
    assert chosen.terms == pytest.approx({"queue": 0, "overhead": 0.030, "prefill": 0.030, "resume": 0.005})


def test_lost_segments_are_made_again_where_their_ancestors_lie() -> None:
    """b holds nothing of it, so there the whole path would be made again."""
    view = View((worker("b"), worker("c", "doc", queue=0.05)), COST)
    decision = decide(edge(), view)
    assert {a.how for a in decision.alternatives} == {"recompute"}
    assert {a.worker: a.missing_tokens for a in decision.alternatives} == {"b": 130, "c": 30}
    assert (decision.chosen.worker, decision.chosen.seconds) == ("c", pytest.approx(0.05 + 0.030 + 0.030 + 0.005))
    assert decision.reason.startswith("30 tokens are prefilled again on c")


def test_a_lost_middle_is_made_again_between_what_is_there() -> None:
    curve = PrefillCurve(0.0, 0.0, 1e-3, 1)
    cost = CostModel(curve, 0.01, Link(0.0, 1e6), 0.002, 0.010)
    (only,) = alternatives_for(edge(), View((worker("a", "doc", "review"),), cost))
    assert (only.how, only.missing_tokens) == ("recompute", 20)
    assert only.terms["prefill"] == pytest.approx(1e-3 * 20 * (100 + 10))


def test_segments_on_workers_that_may_not_be_chosen_still_count() -> None:
    view = View((worker("a", *RECIPES), worker("b")), COST, candidates=frozenset({"b"}))
    decision = decide(edge(), view)
    assert {a.worker for a in decision.alternatives} == {"b"}
    assert decision.chosen.how == "map"


def test_a_fresh_start_goes_to_the_idle_worker_and_to_the_one_with_more_threads() -> None:
    fresh = edge(path=(), new=100)
    decision = decide(fresh, View((worker("a", queue=0.1), worker("b")), COST))
    assert (decision.chosen.how, decision.chosen.worker) == ("recompute", "b")
    assert decision.chosen.terms == pytest.approx({"queue": 0, "overhead": 0.010, "prefill": 0.1})
    assert decision.chosen.missing_tokens == 0
    assert decision.reason == "nothing to reuse: prefill 100 tokens on b"
    assert decide(fresh, View((worker("a"), worker("b", threads=2)), COST)).chosen.worker == "b"


def test_ties_go_to_the_road_that_moves_least_then_to_the_first_name() -> None:
    free = CostModel(COST.prefill, 0.01, Link(0.0, 1e30), 0.0, 0.010)
    assert choice(View((worker("b"), worker("a", *RECIPES)), free))[:2] == ("in place", "a")
    assert choice(View((worker("b", *RECIPES), worker("a", *RECIPES)), free))[:2] == ("in place", "a")
    both = View((worker("c", *RECIPES, queue=1), worker("b"), worker("a")), free)
    assert choice(both)[:2] == ("map", "a")


def test_without_a_worker_there_is_nothing_to_decide() -> None:
    with pytest.raises(ValueError, match="planner→editor"):
        decide(edge(), View((), COST))


recipes = [f"r{i}" for i in range(5)]
paths = st.lists(st.integers(1, 400), max_size=5).map(
    lambda sizes: tuple(Piece(recipe, n, n * NBYTES) for recipe, n in zip(recipes, sizes, strict=False))
)
workers = st.lists(
    st.builds(
        WorkerView,
        st.sampled_from("abcd"),
        st.sampled_from(["one", "two"]),
        st.frozensets(st.sampled_from(recipes)),
        st.floats(0, 1),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda w: w.name,
)
costs = st.builds(
    CostModel,
    st.builds(PrefillCurve, st.floats(0, 0.1), st.floats(0, 1e-2), st.floats(0, 1e-5), st.just(2)),
    st.just(0.01),
    st.builds(Link, st.floats(0, 0.1), st.floats(1e3, 1e10)),
    st.floats(0, 0.1),
    st.floats(0, 0.1),
)
worlds = st.builds(View, workers.map(tuple), costs, st.booleans())


@given(paths, worlds, st.integers(1, 500))
def test_in_every_world_the_chosen_one_is_the_cheapest_that_is_open(
    path: tuple[Piece, ...], view: View, new: int
) -> None:
    decision = decide(edge(path, new), view)
    open_ones = [a for a in decision.alternatives if a.excluded is None]
    assert decision.chosen in open_ones
    assert decision.chosen.seconds == min(a.seconds for a in open_ones)
    assert {a.worker for a in decision.alternatives} == {w.name for w in view.workers}
    assert len({(a.how, a.worker) for a in decision.alternatives}) == len(decision.alternatives)
    assert decision.chosen.worker in decision.reason
    assert decide(edge(path, new), view) == decision


@given(paths, worlds, st.integers(1, 500))
def test_in_every_world_the_terms_are_named_and_the_roads_are_possible(
    path: tuple[Piece, ...], view: View, new: int
) -> None:
    by_name = {w.name: w for w in view.workers}
    for a in alternatives_for(edge(path, new), view):
        there = by_name[a.worker]
        missing = [piece for piece in path if piece.recipe not in there.resident]
        assert set(a.terms) <= {"queue", "overhead", "transfer", "prefill", "resume"}
        assert min(a.terms.values()) >= 0
        assert a.terms["queue"] == there.queue_seconds
        assert a.seconds == sum(a.terms.values())
        assert ("transfer" in a.terms) == (a.how in ("map", "transfer"))
        assert ("prefill" in a.terms) == (a.how == "recompute")
        assert (a.nbytes > 0) == (a.how == "transfer")
        if a.how == "in place":
            assert path
            assert not missing
        if a.how in ("map", "transfer"):
            assert a.missing_tokens == sum(piece.n_tokens for piece in missing) > 0
            for piece in missing:
                holders = [w for w in view.workers if piece.recipe in w.resident]
                assert holders
                assert a.how == "transfer" or any(w.host == there.host for w in holders)
        if a.how == "map":
            assert view.mappable
        if a.how == "recompute" and missing:
            assert a.missing_tokens == sum(piece.n_tokens for piece in missing)


@given(paths.filter(bool), worlds)
def test_a_longer_queue_never_draws_work(path: tuple[Piece, ...], view: View) -> None:
    first = decide(edge(path), view).chosen
    busier = tuple(
        WorkerView(w.name, w.host, w.resident, w.queue_seconds + (1.0 if w.name != first.worker else 0.0), w.threads)
        for w in view.workers
    )
    assert decide(edge(path), View(busier, view.cost, view.mappable)).chosen == first
