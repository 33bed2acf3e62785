"""Decisions in small worlds whose best answer is known, and what holds in every world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.cost.decide import decide
from kvlab.cost.model import DISK, CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.policies import forced, policy_named
from kvlab.cost.roads import SHORTEST_PART, Alternative, Split, again_tokens, roads_for
from kvlab.cost.seen import seen, world_of
from kvlab.cost.world import Edge, Piece, View, WorkerView

# One millisecond a token, 10 ms a task, 2 ms to map, a link of 1 MB/s: a token of 1,000 bytes moves as fast as it prefills.
STEP = DecodeCurve(0.01)
COST = CostModel(PrefillCurve(0.0, 1e-3, 0.0, 1), STEP, Link(0.0, 1e6), 0.002, 0.010)
NBYTES = 1000
PATH = tuple(Piece(recipe, n, n * NBYTES) for recipe, n in (("doc", 100), ("plan", 20), ("review", 10)))
RECIPES = [piece.recipe for piece in PATH]
ORDER = ["in place", "map", "transfer", "recompute"]


def edge(path: tuple[Piece, ...] = PATH, new: int = 5) -> Edge:
    return Edge("planner→editor", "planner", "editor", path, new)


def worker(name: str, *resident: str, host: str = "h", queue: float = 0.0, threads: int = 1) -> WorkerView:
    return WorkerView(name, host, frozenset(resident), queue, threads)


def with_link(rate: float, t0: float = 0.0) -> CostModel:
    return CostModel(COST.prefill, STEP, Link(t0, rate), COST.map_seconds, COST.task_seconds)


def choice(view: View, path: tuple[Piece, ...] = PATH) -> tuple[str, str, float]:
    chosen = decide(edge(path), view).chosen
    return chosen.how, chosen.worker, pytest.approx(chosen.seconds)


def fastest_pure(view: View) -> str:
    """The faster of moving everything to b and computing everything there."""
    pure = [a for a in roads_for(edge(), view) if a.worker == "b" and a.how != "hybrid"]
    return min(pure, key=lambda a: a.seconds).how


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
    in_place = next(a for a in roads_for(edge(), view) if a.how == "in place")
    assert in_place.terms["queue"] == busy


def test_between_hosts_bytes_move_and_nothing_is_mapped() -> None:
    view = View((worker("a", *RECIPES, queue=9, host="one"), worker("b", host="two")), with_link(1e7))
    assert choice(view) == ("transfer", "b", 0.010 + 0.013 + 0.005)
    assert {a.how for a in roads_for(edge(), view)} == {"in place", "transfer", "hybrid", "recompute"}
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
    assert fastest_pure(view) == how


def test_the_break_even_of_a_link_is_where_both_cost_the_same() -> None:
    even = 130_000 / 0.16
    far = (worker("a", *RECIPES, queue=9, host="one"), worker("b", host="two"))
    assert fastest_pure(View(far, with_link(even * 1.001))) == "transfer"
    assert fastest_pure(View(far, with_link(even * 0.999))) == "recompute"


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
    cost = CostModel(curve, STEP, Link(0.0, 1e6), 0.002, 0.010)
    (only,) = roads_for(edge(), View((worker("a", "doc", "review"),), cost))
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
    free = CostModel(COST.prefill, STEP, Link(0.0, 1e30), 0.0, 0.010)
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
    st.just(STEP),
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
    for a in roads_for(edge(path, new), view):
        there = by_name[a.worker]
        missing = [piece for piece in path if piece.recipe not in there.resident]
        assert set(a.terms) <= {"queue", "link queue", "overhead", "transfer", "prefill", "resume", "overlap"}
        assert min(value for name, value in a.terms.items() if name != "overlap") >= 0
        assert -a.terms["queue"] - a.terms.get("prefill", 0.0) <= a.terms.get("overlap", 0.0) <= 0
        assert a.terms["queue"] == there.queue_seconds
        assert a.seconds == sum(a.terms.values())
        assert ("transfer" in a.terms) == (a.how in ("map", "transfer", "hybrid"))
        assert ("prefill" in a.terms) == (a.how in ("hybrid", "recompute"))
        assert (a.nbytes > 0) == (a.how in ("transfer", "hybrid")) == bool(a.moved)
        assert sum(a.moved.values()) == a.nbytes
        if a.how == "in place":
            assert path
            assert not missing
        if a.how == "hybrid":
            again = again_tokens(edge(path, new), a)
            assert SHORTEST_PART <= again <= a.missing_tokens - SHORTEST_PART
            assert a.nbytes == (a.missing_tokens - again) * NBYTES
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


def far(queue: float = 9.0) -> tuple[WorkerView, ...]:
    return worker("a", *RECIPES, queue=queue, host="one"), worker("b", host="two")


FREE_TASKS = CostModel(COST.prefill, STEP, Link(0.0, 1e6), 0.0, 0.0)
"""A token moves in the millisecond in which it is prefilled; nothing else costs anything."""


def test_a_hybrid_halves_the_time_where_both_pure_roads_cost_the_same() -> None:
    """130 tokens: 65 are prefilled in 65 ms while 65 kB arrive in 65 ms; then 5 new tokens."""
    chosen = decide(edge(), View(far(), FREE_TASKS)).chosen
    assert (chosen.how, chosen.worker, chosen.split, chosen.again) == ("hybrid", "b", Split("doc", 65), ())
    assert chosen.seconds == pytest.approx(0.065 + 0.005)
    assert chosen.terms == pytest.approx(
        {"queue": 0, "transfer": 0.065, "prefill": 0.065, "resume": 0.005, "overhead": 0, "overlap": -0.065}
    )
    assert (chosen.nbytes, chosen.moved, chosen.missing_tokens) == (65_000, {"a": 65_000}, 130)


def test_a_hybrid_computes_whole_segments_and_divides_the_next() -> None:
    """A link five times slower: 109 tokens in front take 109 ms, 21 behind 105 ms; with 108 in front, 110 behind."""
    slow = CostModel(COST.prefill, STEP, Link(0.0, 1e6 / 5), 0.0, 0.0)
    hybrid = next(a for a in roads_for(edge(), View(far(), slow)) if a.how == "hybrid")
    assert (hybrid.again, hybrid.split) == (("doc",), Split("plan", 9))
    assert hybrid.seconds == pytest.approx(0.109 + 0.005)


def test_the_split_of_a_hybrid_is_the_best_of_all() -> None:
    curve = PrefillCurve(0.004, 1e-3, 2e-6, 1)
    cost = CostModel(curve, STEP, Link(0.01, 8e5), 0.0, 0.002, {}, 1e9, 1e-7)
    path = (Piece("doc", 700, 700_000), Piece("plan", 300, 300_000))
    view = View((worker("a", "doc", "plan", host="one"), worker("b", host="two")), cost, candidates=frozenset({"b"}))
    chosen = decide(edge(path), view).chosen
    ends = [_hybrid_by_hand(x, cost, path) for x in range(SHORTEST_PART, 1000 - SHORTEST_PART)]
    assert chosen.how == "hybrid"
    assert chosen.seconds == pytest.approx(min(ends), rel=0.005)


def _hybrid_by_hand(x: int, cost: CostModel, path: tuple[Piece, ...]) -> float:
    """The time of a split after ``x`` tokens, written from its definition and not from the code under test."""
    n_doc, n_all = path[0].n_tokens, sum(piece.n_tokens for piece in path)
    divided = 0 if x == n_doc else n_doc if x < n_doc else n_all - n_doc
    cut = 0 if x == n_doc else n_doc - x if x < n_doc else n_all - x
    prefill = cost.prefill.seconds(min(x, n_doc), 0, 1) + cost.prefill.seconds(max(0, x - n_doc), n_doc, 1)
    moved = (n_all - x) * NBYTES
    computed = prefill + moved * cost.receive_seconds_per_byte
    arrived = (cut * NBYTES) / cost.copy_bytes_per_second + cost.frames.seconds(moved)
    tasks = (1 if x >= n_doc else 0) + (4 if divided else 0)
    joining = divided * NBYTES / cost.copy_bytes_per_second
    again = cost.prefill.seconds(5, n_all, 1)
    return max(computed, arrived) + joining + cost.task_seconds * (1 + tasks) + again


def test_a_busy_link_is_waited_for_and_makes_recompute_win() -> None:
    view = View(far(), with_link(1e7), link_queues={"a→b": 2.0})
    moved = next(a for a in roads_for(edge(), view) if a.how == "transfer")
    assert moved.terms == pytest.approx(
        {"queue": 0, "link queue": 2.0, "transfer": 0.013, "resume": 0.005, "overhead": 0.01}
    )
    assert choice(view)[0] == "recompute"


def test_bytes_travel_while_the_worker_is_busy() -> None:
    busy = (worker("a", *RECIPES, queue=9, host="one"), worker("b", host="two", queue=1.0))
    moved = next(a for a in roads_for(edge(), View(busy, with_link(1e6))) if a.how == "transfer")
    assert moved.terms["overlap"] == pytest.approx(-0.13)
    assert moved.seconds == pytest.approx(1.0 + 0.005 + 0.010)


def test_each_pair_of_workers_has_its_own_link() -> None:
    cost = CostModel(COST.prefill, STEP, Link(0.0, 1e5), 0.0, 0.0, {"c→b": Link(0.0, 1e9)})
    three = (*far(), worker("c", *RECIPES, queue=9, host="three"))
    chosen = decide(edge(), View(three, cost)).chosen
    assert (chosen.how, chosen.worker, chosen.moved) == ("transfer", "b", {"c": 130_000})


def test_segments_come_from_several_sources_at_the_same_time() -> None:
    cost = CostModel(PrefillCurve(0.0, 1.0, 0.0, 1), STEP, Link(0.0, 1e6), 0.0, 0.0)
    workers_ = (worker("a", "doc", host="one"), worker("c", "plan", "review", host="three"), worker("b", host="two"))
    moved = next(a for a in roads_for(edge(), View(workers_, cost, candidates=frozenset({"b"}))) if a.how == "transfer")
    assert moved.moved == {"a": 100_000, "c": 30_000}
    assert moved.terms["transfer"] == pytest.approx(0.1)


# -- what lies on disk

DISK_COST = replace(COST, disk=Link(0.001, 1e7))


def restored(view: View, path: tuple[Piece, ...] = PATH) -> Alternative:
    """The road from disk to the first worker."""
    return next(a for a in roads_for(edge(path), view) if a.how == "restore" and a.worker == view.workers[0].name)


def test_what_is_on_disk_alone_is_read_back_where_that_is_quicker() -> None:
    """130 kB at 10 MB/s are 14 ms with the disk's millisecond; prefilling them again 130 ms."""
    view = View((worker("a"), worker("b", queue=1)), DISK_COST, disk=frozenset(RECIPES))
    decision = decide(edge(), view)
    assert (decision.chosen.how, decision.chosen.worker) == ("restore", "a")
    assert decision.chosen.terms == pytest.approx(
        {"queue": 0, "transfer": 0.014, "prefill": 0, "resume": 0.005, "overhead": 0.040}
    )
    assert (decision.chosen.restored, decision.chosen.again) == (tuple(RECIPES), ())
    assert (decision.chosen.moved, decision.chosen.nbytes) == ({DISK: 130_000}, 130_000)
    assert (
        decision.reason == "0.1 MiB are read back from disk on a: 59 ms against 0.18 s for recompute on a (predicted)"
    )
    assert {a.how for a in decision.alternatives} == {"restore", "recompute"}


@pytest.mark.parametrize(("rate", "how"), [(1e7, "restore"), (1.1e6, "restore"), (0.9e6, "recompute")])
def test_a_slow_disk_is_beaten_by_prefilling_again(rate: float, how: str) -> None:
    view = View((worker("a"),), replace(COST, disk=Link(0.0, rate)), disk=frozenset(RECIPES))
    assert choice(view)[:2] == (how, "a")


def test_a_copy_elsewhere_goes_before_the_disk_where_it_comes_sooner() -> None:
    """Mapping is always quicker; over a link the sooner of both wins."""
    mapped = View((worker("a"), worker("b", *RECIPES, queue=9)), DISK_COST, disk=frozenset(RECIPES))
    assert choice(mapped)[0] == "map"
    assert {a.how for a in roads_for(edge(), mapped)} == {"map", "recompute", "in place"}
    for rate, how in ((1e9, "transfer"), (1e6, "restore")):
        there = worker("b", *RECIPES, host="other", queue=9)
        view = View((worker("a"), there), replace(with_link(rate), disk=DISK_COST.disk), disk=frozenset(RECIPES))
        assert choice(view)[:2] == (how, "a")


def test_what_nobody_has_is_prefilled_on_top_of_what_is_read() -> None:
    view = View((worker("a", "doc"),), DISK_COST, disk=frozenset({"plan"}))
    road = restored(view)
    assert (road.restored, road.again, road.missing_tokens) == (("plan",), ("review",), 30)
    assert road.terms["prefill"] == pytest.approx(0.010)
    assert road.terms["overhead"] == pytest.approx(0.030)
    assert again_tokens(edge(), road) == 10
    assert "and 10 tokens prefilled again" in decide(edge(), view).reason


def test_reading_waits_for_the_disk_and_overlaps_with_a_busy_worker() -> None:
    view = View((worker("a", queue=0.5),), DISK_COST, link_queues={"disk→a": 0.1}, disk=frozenset(RECIPES))
    terms = restored(view).terms
    assert (terms["link queue"], terms["overlap"]) == pytest.approx((0.1, -0.114))


def test_policies_take_the_disk_for_a_road_that_computes_nothing() -> None:
    view = View((worker("a"),), DISK_COST, disk=frozenset(RECIPES))
    assert decide(edge(), view, policy_named("always-transfer")).chosen.how == "restore"
    assert decide(edge(), view, policy_named("always-recompute")).chosen.how == "recompute"
    assert decide(edge(), view, forced("restore")).chosen.how == "restore"


def test_what_was_seen_tells_of_the_disk_and_its_link() -> None:
    told = seen(decide(edge(), View((worker("a"),), DISK_COST, disk=frozenset({"plan", "elsewhere"}))))
    assert told["disk"] == [1]
    assert told["links"] == {"disk→a": [0.001, 1e7, 0.0]}
    assert {road.how for road in roads_for(*world_of(told))} == {"restore", "recompute"}
