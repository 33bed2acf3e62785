"""How long a worker is busy, and how many threads the next piece of work gets."""

from __future__ import annotations

from kvlab.runtime.load import Load


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_queues_up_and_is_done_in_order() -> None:
    clock = Clock()
    load = Load(clock)
    assert load.queue_seconds("a") == 0
    load.begin("a", "one", 4)
    load.begin("a", "two", 3)
    assert load.queue_seconds("a") == 7
    assert load.queue_seconds("b") == 0
    clock.now += 3
    assert load.queue_seconds("a") == 4
    clock.now += 1
    load.end("a", "one")
    assert load.queue_seconds("a") == 3
    load.end("a", "two")
    assert load.queue_seconds("a") == 0


def test_work_that_ends_early_or_late_moves_what_is_behind_it() -> None:
    clock = Clock()
    load = Load(clock)
    for action in ("one", "two", "three"):
        load.begin("a", action, 10)
    clock.now += 1
    load.end("a", "one")
    assert load.queue_seconds("a") == 20
    clock.now += 30
    # It overruns: what is behind it has not begun.
    assert load.queue_seconds("a") == 10
    load.end("a", "two")
    assert load.queue_seconds("a") == 10
    clock.now += 4
    assert load.queue_seconds("a") == 6


def test_work_that_is_cancelled_in_the_queue_leaves_it() -> None:
    clock = Clock()
    load = Load(clock)
    load.begin("a", "one", 4)
    load.begin("a", "two", 3)
    clock.now += 1
    load.end("a", "two")
    assert load.queue_seconds("a") == 3
    load.end("a", "two")
    load.end("b", "one")
    assert load.queue_seconds("a") == 3


def test_an_idle_time_is_not_counted() -> None:
    clock = Clock()
    load = Load(clock)
    load.begin("a", "one", 4)
    load.end("a", "one")
    clock.now += 50
    load.begin("a", "two", 3)
    clock.now += 1
    assert load.queue_seconds("a") == 2


def test_cores_are_divided_among_the_workers_of_a_host_that_have_work() -> None:
    load = Load(Clock())
    neighbours = frozenset("abc")
    assert load.threads_for("a", 8, neighbours) == 8
    load.begin("a", "own", 1)
    assert load.threads_for("a", 8, neighbours) == 8
    load.begin("b", "x", 1)
    assert load.threads_for("a", 8, neighbours) == 4
    load.begin("elsewhere", "y", 1)
    assert load.threads_for("a", 8, neighbours) == 4
    load.begin("c", "z", 1)
    assert load.threads_for("a", 8, neighbours) == 2
    assert load.threads_for("a", 2, neighbours) == 1
    load.end("b", "x")
    assert load.threads_for("a", 8, neighbours) == 4
