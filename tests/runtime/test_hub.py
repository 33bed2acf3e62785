"""The hub: every event once, in order, to whom it belongs; losses are told."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pytest

from kvlab.runtime.hub import IDLE_SECONDS, Hub
from kvlab.store.events import Event, Kind


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.close()
    assert not made._thread.is_alive()


class Kept(list[Event]):
    """A sink that keeps everything."""

    n_idle = 0

    def append(self, events: Any) -> None:
        self.extend(events)

    def idle(self) -> None:
        self.n_idle += 1


def from_dask(
    source: str, *numbers: int, run: str = "", kind: Kind = Kind.TOKENS
) -> tuple[float, list[dict[str, Any]]]:
    batch = []
    for number in numbers:
        event = asdict(Event(kind, number, source, number, agent="a", n_tokens=1, detail={"ids": [number]}))
        event["kind"] = str(kind)
        batch.append({"run": run, "event": event})
    return time.time(), batch


def notes(kept: Kept) -> list[str]:
    return [event.detail["text"] for event in kept if event.kind is Kind.NOTE]


def test_events_of_a_run_go_to_its_sink_and_those_of_the_cluster_to_all(hub: Hub) -> None:
    one, two = Kept(), Kept()
    hub.add_sink("one", one)
    hub.add_sink("two", two)
    hub.emit(Kind.TOKENS, "one", n_tokens=1)
    hub.emit(Kind.WORKER_JOINED, worker="w")
    hub.emit(Kind.TOKENS, "two", n_tokens=2)
    hub.emit(Kind.TOKENS, "closed", n_tokens=3)
    hub.settle()
    assert [event.kind for event in one] == [Kind.TOKENS, Kind.WORKER_JOINED]
    assert [event.kind for event in two] == [Kind.WORKER_JOINED, Kind.TOKENS]
    assert (two[1].n_tokens, two[0].worker) == (2, "w")
    hub.remove_sink("one")
    hub.emit(Kind.TOKENS, "one", n_tokens=4)
    hub.settle()
    assert len(one) == 2
    hub.remove_sink("never there")


def test_sinks_hear_once_that_nothing_comes(hub: Hub) -> None:
    kept = Kept()
    hub.add_sink("run", kept)
    for round_ in (1, 2):
        hub.emit(Kind.TOKENS, "run", n_tokens=1)
        deadline = time.monotonic() + 10
        while kept.n_idle < round_ and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(2 * IDLE_SECONDS)
        assert kept.n_idle == round_


def test_what_was_enqueued_before_a_sink_leaves_is_still_delivered(hub: Hub) -> None:
    kept = Kept()
    hub.add_sink("run", kept)
    for n in range(2000):
        hub.emit(Kind.TOKENS, "run", n_tokens=n)
    hub.remove_sink("run")
    assert [event.n_tokens for event in kept] == list(range(2000))


def test_order_is_kept_per_source_with_many_threads(hub: Hub) -> None:
    kept = Kept()
    hub.add_sink("run", kept)

    def worker(index: int) -> None:
        for first in range(0, 300, 3):
            hub.on_dask_event(from_dask(f"w{index}", first, first + 1, first + 2, run="run"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(worker, range(4)))
        list(pool.map(lambda _: hub.emit(Kind.NOTE, "run", detail={"text": "x"}), range(200)))
    hub.settle()
    assert len(kept) == 4 * 300 + 200
    for source, found in itertools.groupby(sorted(kept, key=lambda e: e.source), key=lambda e: e.source):
        n = 200 if source == "lab" else 300
        assert [event.source_seq for event in found] == list(range(n))
    for index in range(4):
        numbers = [event.source_seq for event in kept if event.source == f"w{index}"]
        assert numbers == sorted(numbers)
    assert [e.source_seq for e in kept if e.source == "lab"] == list(range(200))


def test_events_from_dask_are_events_again(hub: Hub) -> None:
    kept = Kept()
    hub.add_sink("run", kept)
    hub.on_dask_event(from_dask("w", 4, run="run"))
    hub.settle()
    assert kept == [Event(Kind.TOKENS, 4, "w", 4, agent="a", n_tokens=1, detail={"ids": [4]})]
    assert kept[0].kind is Kind.TOKENS


def test_a_gap_is_told_to_every_open_run_once(hub: Hub) -> None:
    one, two = Kept(), Kept()
    hub.add_sink("one", one)
    hub.add_sink("two", two)
    hub.on_dask_event(from_dask("w", 7, 8, run="one"))
    hub.on_dask_event(from_dask("v", 0, 1, run="one"))
    hub.settle()
    assert notes(one) == notes(two) == []
    hub.on_dask_event(from_dask("w", 11, 12, run="one"))
    hub.settle()
    hub.settle()
    assert notes(one) == notes(two) == ["2 events of w were lost"]
    note = next(event for event in two if event.kind is Kind.NOTE)
    assert note.detail["level"] == "warning"
    assert [event.source_seq for event in one if event.source == "w"] == [7, 8, 11, 12]


def test_a_source_that_starts_again_has_lost_nothing(hub: Hub) -> None:
    kept = Kept()
    hub.add_sink("run", kept)
    hub.on_dask_event(from_dask("scheduler", 5, 6, run="run"))
    hub.on_dask_event(from_dask("scheduler", 0, 1, 2, run="run"))
    hub.settle()
    assert notes(kept) == []


def test_listeners_hear_after_the_event_is_stored_until_they_leave(hub: Hub) -> None:
    kept, heard, stored = Kept(), [], []
    hub.add_sink("run", kept)

    def listener(run: str, event: Event) -> None:
        heard.append((run, event))
        stored.append(event in kept)

    leave = hub.listen(listener)
    hub.emit(Kind.TOKENS, "run", n_tokens=1)
    hub.settle()
    leave()
    leave()
    hub.emit(Kind.TOKENS, "run", n_tokens=2)
    hub.settle()
    assert [(run, event.n_tokens) for run, event in heard] == [("run", 1)]
    assert stored == [True]


def test_a_sink_or_listener_that_fails_harms_no_other(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def append(self, events: list[Event]) -> None:
            raise OSError("disk full")

    def bad(run: str, event: Event) -> None:
        raise RuntimeError("listener broke")

    kept, heard = Kept(), []
    hub.add_sink("full", Full())
    hub.add_sink("run", kept)
    hub.listen(bad)
    hub.listen(lambda run, event: heard.append(event))
    with caplog.at_level(logging.ERROR):
        hub.emit(Kind.WORKER_JOINED, worker="w")
        hub.emit(Kind.TOKENS, "full", n_tokens=1)
        hub.emit(Kind.TOKENS, "run", n_tokens=1)
        hub.settle()
    assert len(kept) == 2
    assert len(heard) == 3
    assert "could not be stored" in caplog.text
    assert "a listener failed" in caplog.text


def test_settling_from_a_listener_or_after_the_end_does_not_wait(hub: Hub) -> None:
    took: list[float] = []

    def listener(run: str, event: Event) -> None:
        started = time.monotonic()
        hub.remove_sink("run")
        took.append(time.monotonic() - started)

    hub.listen(listener)
    hub.emit(Kind.TOKENS, "run", n_tokens=1)
    hub.settle()
    hub.close()
    started = time.monotonic()
    hub.emit(Kind.TOKENS, "run", n_tokens=1)
    hub.settle()
    hub.close()
    assert max(*took, time.monotonic() - started) < 2


def test_settling_on_a_stuck_sink_says_so(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    free = threading.Event()

    class Slow:
        def append(self, events: list[Event]) -> None:
            free.wait(10)

    hub.add_sink("run", Slow())
    hub.emit(Kind.TOKENS, "run", n_tokens=1)
    hub.settle(0.05)
    assert "not delivered" in caplog.text
    free.set()


def test_closing_delivers_what_is_left(hub: Hub) -> None:
    kept = Kept()
    hub.add_sink("run", kept)
    for n in range(500):
        hub.emit(Kind.TOKENS, "run", n_tokens=n)
    hub.close()
    assert len(kept) == 500
