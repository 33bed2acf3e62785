"""The gate: open, closed, one step at a time, cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as settled

import pytest

from kvlab.errors import Cancelled
from kvlab.runtime.gate import Gate


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def arrive(pool: ThreadPoolExecutor, gate: Gate, *actions: str) -> list[Future[None]]:
    """Each action waits in a thread of its own before this returns."""
    found = []
    for action in actions:
        found.append(pool.submit(gate.pass_through, action))
        deadline = time.monotonic() + 5
        while len(gate._waiting) < len(found) and time.monotonic() < deadline:
            time.sleep(0.001)
    return found


def passed(futures: list[Future[None]], n: int) -> list[Future[None]]:
    """Those that passed, when ``n`` have and no more follow."""
    deadline = time.monotonic() + 5
    while sum(f.done() for f in futures) < n and time.monotonic() < deadline:
        time.sleep(0.001)
    settled(futures, timeout=0.05)
    return [f for f in futures if f.done()]


def test_an_open_gate_lets_everything_through() -> None:
    gate = Gate()
    for _ in range(3):
        gate.pass_through("prefill")
    assert not gate.closed
    assert gate.waiting is None


def test_a_closed_gate_lets_as_many_through_as_there_are_steps(pool: ThreadPoolExecutor) -> None:
    gate = Gate(closed=True)
    waiting = arrive(pool, gate, *"abcde")
    assert gate.waiting == "a"
    assert passed(waiting, 0) == []
    gate.step()
    assert len(passed(waiting, 1)) == 1
    gate.step(2)
    assert len(passed(waiting, 3)) == 3
    assert gate.closed
    gate.open()
    assert len(passed(waiting, 5)) == 5
    assert gate.waiting is None


def test_steps_ahead_are_kept_for_actions_to_come(pool: ThreadPoolExecutor) -> None:
    gate = Gate(closed=True)
    gate.step(2)
    gate.pass_through("a")
    gate.pass_through("b")
    third = arrive(pool, gate, "c")
    assert passed(third, 0) == []
    gate.open()
    third[0].result(5)


def test_steps_of_an_open_gate_do_not_open_a_later_pause(pool: ThreadPoolExecutor) -> None:
    gate = Gate()
    gate.step(3)
    gate.close()
    waiting = arrive(pool, gate, "a")
    assert passed(waiting, 0) == []
    gate.open()
    waiting[0].result(5)


def test_steps_left_over_when_it_opens_are_forgotten(pool: ThreadPoolExecutor) -> None:
    gate = Gate(closed=True)
    gate.step(3)
    gate.open()
    gate.close()
    waiting = arrive(pool, gate, "a")
    assert passed(waiting, 0) == []
    gate.open()
    waiting[0].result(5)


@pytest.mark.parametrize("early", [False, True])
def test_a_gate_made_closed_stops_at_its_first_action_whenever_that_came(pool: ThreadPoolExecutor, early: bool) -> None:
    gate = Gate(closed=True)

    def first() -> Future[None]:
        return pool.submit(gate.pass_through, "prefill", None, {"first"})

    waiting = first() if early else None
    while early and gate.waiting is None:
        time.sleep(0.01)
    gate.open(stops=["first"])
    waiting = waiting or first()
    deadline = time.monotonic() + 5
    while not (gate.closed and gate.waiting) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert passed([waiting], 0) == []
    gate.open(stops=["first"])  # what is pending now was stopped at: the next one counts
    waiting.result(5)
    again = first()
    assert passed([again], 0) == []
    gate.open()
    again.result(5)


@pytest.mark.parametrize("closed", [False, True])
def test_a_cancelled_gate_turns_away_what_waits_and_what_comes(pool: ThreadPoolExecutor, closed: bool) -> None:
    gate = Gate(closed=closed)
    waiting = arrive(pool, gate, "prefill", "decode") if closed else []
    gate.cancel()
    for future in waiting:
        with pytest.raises(Cancelled, match="cancelled before (prefill|decode)"):
            future.result(5)
    with pytest.raises(Cancelled) as caught:
        gate.pass_through("late")
    assert caught.value.hint
    assert caught.value.data == {"action": "late"}
    assert gate.waiting is None
    gate.step()
    with pytest.raises(Cancelled):
        gate.pass_through("later")


def test_many_steps_by_many_threads_let_exactly_so_many_through(pool: ThreadPoolExecutor) -> None:
    gate = Gate(closed=True)
    through = threading.Semaphore(0)

    def walk() -> None:
        for _ in range(50):
            gate.pass_through("x")
            through.release()

    walkers = [pool.submit(walk) for _ in range(4)]
    for stepper in [threading.Thread(target=lambda: [gate.step() for _ in range(30)]) for _ in range(3)]:
        stepper.start()
        stepper.join()
    for _ in range(90):
        assert through.acquire(timeout=5)
    assert not through.acquire(timeout=0.05)
    gate.open()
    settled(walkers, timeout=5)
