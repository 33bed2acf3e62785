"""The budget: never more than the limit, and the error says who holds what."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.errors import NoRoom
from kvlab.runtime.budget import Budget, Holder, Wanted

MIB = 1 << 20
names = st.sampled_from("abcde")
steps = st.lists(st.tuples(st.sampled_from(["reserve", "release"]), names, st.integers(0, 120)), max_size=40)


@given(steps)
def test_what_is_used_is_the_sum_of_what_is_reserved_and_never_over_the_limit(
    steps: list[tuple[str, str, int]],
) -> None:
    budget, expected = Budget(100, list), {}
    for step, name, nbytes in steps:
        if step == "release":
            budget.release(name)
            expected.pop(name, None)
        elif sum(expected.values()) - expected.get(name, 0) + nbytes <= 100:
            budget.reserve(name, nbytes, "work")
            expected[name] = nbytes
        else:
            with pytest.raises(NoRoom) as caught:
                budget.reserve(name, nbytes, "work")
            # What the same name holds would be given back first.
            assert caught.value.data["free_bytes"] == 100 - sum(expected.values()) + expected.get(name, 0)
            assert caught.value.data["need_bytes"] == nbytes
        assert budget.used_bytes == sum(expected.values()) <= 100


def test_the_error_names_need_free_limit_and_the_largest_holders() -> None:
    held = [Holder(f"s{i} state-{i}", (9 - i) * MIB, why="pinned" if i else "in use by run/editor") for i in range(9)]
    budget = Budget(10 * MIB, lambda: held)
    budget.reserve("first", 9 * MIB, "work")
    with pytest.raises(NoRoom) as caught:
        budget.reserve("second", 2 * MIB, "agent editor")
    text = str(caught.value)
    assert "agent editor needs 2.0 MiB" in text
    assert "1.0 of 10.0 MiB are free" in text
    assert "s0 state-0 9.0 MiB (in use by run/editor), s1 state-1 8.0 MiB (pinned)" in text
    assert caught.value.data["held"][1] == ("s1 state-1", 8 * MIB, "pinned")
    assert "s6" not in text
    assert "evict" in text
    budget.release("first")
    budget.reserve("second", 10 * MIB, "work")


def test_concurrent_reservations_never_pass_the_limit() -> None:
    budget = Budget(50, list)

    def take(index: int) -> bool:
        try:
            budget.reserve(str(index), 1, "work")
        except NoRoom:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(400))) == 50
    assert budget.used_bytes == 50


def test_all_that_is_wanted_is_set_aside_or_nothing() -> None:
    budget = Budget(100, list, device_limit_bytes=60)
    budget.reserve("other", 30, "work", device="a")
    with pytest.raises(NoRoom) as caught:
        budget.reserve_all([Wanted("x", 40, "b"), Wanted("y", 40, "b")], "work")
    assert (caught.value.data["need_bytes"], caught.value.data["free_bytes"]) == (80, 70)
    with pytest.raises(NoRoom, match="on a") as caught:
        budget.reserve_all([Wanted("x", 20, "a"), Wanted("y", 20, "a")], "work")
    assert (caught.value.data["device"], caught.value.data["free_bytes"]) == ("a", 30)
    assert budget.used_bytes == 30
    budget.reserve_all([Wanted("other", 40, "a"), Wanted("y", 20, "a", on_host=0)], "work")
    assert (budget.used_bytes, budget.used_on("a")) == (40, 60)


def test_who_needs_two_halves_never_waits_with_one() -> None:
    budget = Budget(2, list)
    meeting = Barrier(2)

    def take(name: str) -> bool:
        meeting.wait()
        for _ in range(2000):
            with contextlib.suppress(NoRoom):
                budget.reserve_all([Wanted(f"{name}1", 1), Wanted(f"{name}2", 1)], "work")
                budget.release_all(name)
                return True
        return False

    for _ in range(50):
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(take, "ab"))
    assert budget.used_bytes == 0
