"""The budget: never more than the limit, and the error says who holds what."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.errors import NoRoom
from kvlab.runtime.budget import Budget, Holder

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
