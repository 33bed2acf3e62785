"""Each eviction policy against what is known of it: hand-made orders, and oracles by another way."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kvlab.bench.trace import read_trace
from kvlab.errors import InvalidInput
from kvlab.policy.arc import ARC
from kvlab.policy.belady import Belady
from kvlab.policy.eviction import NAMES, NEVER, Candidate, eviction_policy
from kvlab.policy.lru import LRU
from kvlab.policy.replay import Replayed, Request, replay, working_set
from kvlab.policy.shelves import Shelves, in_order
from kvlab.policy.workflow_aware import WorkflowAware, worth

NOW = 10


def one(key: str, last: int = 0, following: float | None = None, **more: object) -> Candidate:
    given: dict[str, object] = {"nbytes": 1, "seconds": 1.0, "last_use": last, "next_use": following, **more}
    return Candidate(key, **given)  # type: ignore[arg-type]


def order(policy: object, *candidates: Candidate) -> str:
    return "".join(each.key for each in in_order(policy, candidates, NOW))  # type: ignore[arg-type]


def test_least_recently_used_goes_first_and_the_deeper_before_what_it_continues() -> None:
    assert order(LRU(), one("a", 3), one("b", 1), one("c", 2)) == "bca"
    assert order(LRU(), one("a", 3), one("b", 3, depth=2, parent="c"), one("c", 3, depth=1, parent="a")) == "bca"


def test_belady_takes_the_farthest_next_use_and_never_first() -> None:
    assert order(Belady(), one("a", 0, 12), one("b", 0, NEVER), one("c", 0, 30)) == "bca"
    with pytest.raises(InvalidInput, match="next use of a"):
        order(Belady(), one("a", 0, None))


def test_workflow_aware_weighs_cost_and_bytes_and_distance() -> None:
    aware = WorkflowAware()
    assert order(aware, one("a", 0, 12), one("b", 0, NEVER), one("c", 0, 30)) == "bca"
    assert order(aware, one("dear", 0, 20, seconds=9.0), one("cheap", 0, 20, seconds=2.0)) == "cheapdear"
    assert order(aware, one("big", 0, 20, nbytes=9), one("small", 0, 20, nbytes=2)) == "bigsmall"
    assert order(aware, one("soon and big", 0, 11, nbytes=9), one("late", 0, 110)) == "latesoon and big"


def test_what_a_path_is_worth_does_not_depend_on_how_it_is_cut() -> None:
    aware = WorkflowAware()
    whole = one("whole", 0, 30, nbytes=8, seconds=8.0, fixed_seconds=5.0)
    pieces = [one(f"{n}", 0, 29, seconds=1.0, fixed_seconds=5.0, depth=n, parent=f"{n - 1}") for n in range(1, 9)]
    assert order(aware, whole, *pieces) == "whole87654321"
    later = [one(f"{n}", 0, 31, seconds=1.0, fixed_seconds=5.0, depth=n, parent=f"{n - 1}") for n in range(1, 9)]
    assert order(aware, whole, *later) == "87654321whole"


def test_workflow_aware_keeps_what_is_continued_by_something_of_worth() -> None:
    parent = one("p", 0, NEVER)
    child = one("c", 0, 11, parent="p", depth=1)
    assert order(WorkflowAware(), parent, child, one("x", 0, 40)) == "xcp"


def test_where_the_next_use_is_unknown_workflow_aware_is_lru() -> None:
    draw = random.Random(3)
    many = [one(f"{number}", last) for number, last in enumerate(draw.sample(range(NOW), NOW))]
    assert order(WorkflowAware(), *many) == order(LRU(), *many)


def test_arc_keeps_what_was_used_twice_through_a_scan() -> None:
    hot = [path(1), path(2)] * 4
    scan = [path(number) for number in range(10, 40)]
    after = [path(1), path(2)]
    requests = [*hot, *scan, *after]
    assert replay(requests, ARC(), 8, future=False).hit_tokens == 6 + 2
    assert replay(requests, LRU(), 8, future=False).hit_tokens == 6


def test_arc_shifts_to_what_it_misses() -> None:
    arc = ARC()
    for key in "abcd":
        arc.used(key)
    (first, *_) = in_order(arc, [one(key, last) for last, key in enumerate("abcd")], NOW)
    arc.gone(first.key, evicted=True)
    assert (first.key, list(arc.was_once), arc.target) == ("a", ["a"], 0.0)
    arc.used("a")
    assert (list(arc.again), list(arc.was_once)) == (["a"], [])
    assert arc.target == 1.0
    arc.gone("b", evicted=False)
    assert list(arc.was_once) == []


def test_names_are_known() -> None:
    assert [type(eviction_policy(name)) for name in NAMES] == [LRU, ARC, WorkflowAware, Belady]
    with pytest.raises(InvalidInput, match="no eviction policy 'fifo'") as raised:
        eviction_policy("fifo")
    assert "workflow" in raised.value.hint


# -- replay


def path(*blocks: int) -> Request:
    return Request(blocks, (1,) * len(blocks))


def drawn(seed: int, n_requests: int = 200, n_blocks: int = 12) -> list[Request]:
    draw = random.Random(seed)
    return [path(min(int(draw.expovariate(0.3)), n_blocks - 1)) for _ in range(n_requests)]


def test_with_room_for_all_everything_seen_is_found() -> None:
    requests = [path(1, 2, 3), path(1, 2, 4), path(1, 2, 3)]
    found = replay(requests, LRU(), working_set(requests))
    assert found == Replayed(9, 2 + 3, 0, 0, 4)


def test_a_block_behind_a_gap_is_computed_again() -> None:
    requests = [path(1, 2), path(3), path(1, 2)]
    found = replay(requests, LRU(), 2)
    assert (found.hit_tokens, found.recomputed_tokens, found.evicted_blocks) == (1, 1, 2)
    assert found.peak_tokens == 2


@pytest.mark.parametrize("seed", range(5))
def test_lru_is_an_ordered_dict(seed: int) -> None:
    requests, room = drawn(seed), 4
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for request in requests:
        (block,) = request.blocks
        hits += block in held
        held.pop(block, None)
        held[block] = None
        if len(held) > room:
            held.popitem(last=False)
    assert replay(requests, LRU(), room).hit_tokens == hits


@pytest.mark.parametrize("seed", range(5))
def test_belady_is_the_best_that_any_choice_can_do(seed: int) -> None:
    blocks = tuple(request.blocks[0] for request in drawn(seed, 18, 6))

    @cache
    def best(at: int, held: frozenset[int]) -> int:
        if at == len(blocks):
            return 0
        block = blocks[at]
        if block in held:
            return 1 + best(at + 1, held)
        if len(held) < 3:
            return best(at + 1, held | {block})
        return max(best(at + 1, (held - {victim}) | {block}) for victim in held)

    requests = [path(block) for block in blocks]
    assert replay(requests, Belady(), 3).hit_tokens == best(0, frozenset())
    assert replay(requests, WorkflowAware(), 3).hit_tokens == best(0, frozenset())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("room", [1, 3, 7])
def test_no_policy_ever_holds_more_than_there_is_room_for(name: str, room: int) -> None:
    draw = random.Random(room)
    requests = [path(*(draw.randrange(5) * 10 + depth for depth in range(draw.randrange(1, 6)))) for _ in range(150)]
    found = replay(requests, eviction_policy(name), room)
    assert 0 < found.peak_tokens <= room
    assert found.n_tokens == sum(len(request.blocks) for request in requests)
    assert found.hit_tokens + found.recomputed_tokens <= found.n_tokens


def test_what_is_taken_and_put_back_is_in_order_as_if_it_had_never_been_elsewhere() -> None:
    draw = random.Random(5)
    for policy in (LRU(), Belady(), WorkflowAware()):
        shelves, there = Shelves(policy), dict[str, Candidate]()
        for moment in range(400):
            key = str(draw.randrange(30))
            if key in there:
                shelves.take(key)
                del there[key]
            if draw.random() < 0.8:
                there[key] = one(key, moment, draw.randrange(401, 1300), seconds=draw.choice([1.0, 1.5, 2.5]))
                shelves.put(there[key])
            if moment % 50 == 49:
                expected = [each.key for each in in_order(policy, there.values(), moment)]
                assert [each.key for each in policy.order(shelves, moment)] == expected
                assert expected == [each.key for each in sorted(there.values(), key=by_sorting(policy, moment))]
                for each in there.values():
                    shelves.put(each)


def by_sorting(policy: object, now: int) -> Callable[[Candidate], tuple[float, ...]]:
    """The orders in one line each, for candidates that do not continue each other."""
    if isinstance(policy, LRU):
        return lambda each: (each.last_use,)
    if isinstance(policy, Belady):
        return lambda each: (-(each.next_use or 0), each.last_use)
    return lambda each: (each.seconds / (each.nbytes * max(1, (each.next_use or 0) - now)), each.last_use)


SAMPLE = Path(__file__).parents[2] / "datasets" / "sample_trace.jsonl"
BY_LOOKING_AT_ALL = {
    (2, "lru", True): 7219712, (2, "arc", True): 7227392, (2, "workflow", False): 7219712,
    (2, "workflow", True): 7248896, (2, "belady", True): 7248896,
    (4, "lru", True): 6922752, (4, "arc", True): 6856192, (4, "workflow", False): 6922752,
    (4, "workflow", True): 7229952, (4, "belady", True): 7229952,
    (8, "lru", True): 5621760, (8, "arc", True): 5776384, (8, "workflow", False): 5621760,
    (8, "workflow", True): 6627328, (8, "belady", True): 6628352,
    (16, "lru", True): 4021248, (16, "arc", True): 4117504, (16, "workflow", False): 4021248,
    (16, "workflow", True): 5309952, (16, "belady", True): 5327872,
}  # fmt: skip
"""Tokens found on the sample, by the replay that sorted every block for every request."""


@pytest.fixture(scope="module")
def sample() -> list[Request]:
    return read_trace(SAMPLE)


@pytest.mark.parametrize(("parts", "name", "future"), BY_LOOKING_AT_ALL)
def test_the_sample_comes_to_what_it_did_when_every_block_was_looked_at(
    parts: int, name: str, *, future: bool, sample: list[Request]
) -> None:
    found = replay(sample, eviction_policy(name), working_set(sample) // parts, future=future)
    assert found.hit_tokens == BY_LOOKING_AT_ALL[parts, name, future]


class Sorted:
    """:class:`WorkflowAware` by sorting: worths of all candidates, each raised to that of what continues it."""

    ends_only = False

    def used(self, key: str) -> None: ...
    def gone(self, key: str, *, evicted: bool) -> None: ...
    def shelf(self, one: Candidate) -> str:
        return one.key

    def place(self, one: Candidate) -> tuple[float, ...]:
        return ()

    def order(self, shelves: Shelves, now: int) -> Iterator[Candidate]:
        listed = sorted((one for key in shelves if (one := shelves.first(key))), key=lambda one: -one.depth)
        worths = {one.key: worth(one, now, 1.0) for one in listed}
        for one in listed:
            if one.parent in worths:
                worths[one.parent] = max(worths[one.parent], worths[one.key])
        for one in sorted(listed, key=lambda one: (worths[one.key], one.last_use, -one.depth)):
            shelves.take(one.key)
            yield one


@pytest.mark.parametrize("future", [True, False])
@pytest.mark.parametrize("room", [7, 15, 40])
def test_comparing_ends_alone_is_sorting_all(room: int, *, future: bool) -> None:
    draw = random.Random(room)
    requests = []
    for _ in range(400):
        node, found = 0, []
        for _ in range(draw.randrange(1, 9)):
            node = node * 3 + draw.randrange(1, 4)
            found.append(node)
        requests.append(path(*found))
    assert replay(requests, WorkflowAware(), room, future=future) == replay(requests, Sorted(), room, future=future)


def test_a_budget_without_room_is_refused() -> None:
    with pytest.raises(InvalidInput, match="0 tokens"):
        replay([path(1)], LRU(), 0)
