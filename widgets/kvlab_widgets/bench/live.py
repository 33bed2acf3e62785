"""A run that goes on without a model: its worker says prepared events at a pace, and they take the way of a real run's.

That way is: a worker process's reporter, Dask's event topic, the hub, the recorder with its log on disk; from there a feed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kvlab.runtime import dask_settings
from kvlab.runtime.hub import Hub
from kvlab.runtime.recording import RunRecorder
from kvlab.runtime.reporting import TOPIC, Reporter
from kvlab.store.events import Event
from kvlab.store.runs import new_run_folder
from kvlab_widgets.bench.browser import require
from kvlab_widgets.bench.generated import make_events

_STAMPED = ("kind", "time_ns", "source", "source_seq")
"""Fields that the reporter gives itself."""

_FIELDS = tuple(name for name in Event.__slots__ if name not in _STAMPED)


def say(run: str, n_states: int, first: int, n_events: int, per_second: float) -> int:
    """On a worker: report ``n_events`` of a generated run, from event ``first`` on, so many a second. Returns how many."""
    from distributed import get_worker

    events = make_events(n_states)[first : first + n_events]
    reporter = Reporter(get_worker(), f"bench-{uuid.uuid4().hex[:8]}")
    began = time.perf_counter()
    for number, event in enumerate(events):
        time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        reporter.emit(event.kind, run, **{name: getattr(event, name) for name in _FIELDS})
    reporter.close()
    return len(events)


class Talker:
    """One worker process, and a hub that hears it."""

    def __init__(self, client: Any) -> None:
        self.client, self.hub = client, Hub()
        client.subscribe_topic(TOPIC, self.hub.on_dask_event)

    def close(self) -> None:
        """Hear no more."""
        self.client.unsubscribe_topic(TOPIC)
        self.hub.close()


@contextmanager
def talker() -> Iterator[Talker]:
    """A scheduler in this process with one worker beside it."""
    from distributed import Client, LocalCluster

    dask_settings.apply()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        made = Talker(client)
        try:
            yield made
        finally:
            made.close()


class SpokenRun:
    """A run of ``n_states`` states: the first ``before`` events are there, the others come when they are asked for.

    It has what a feed needs of a live run: ``name``, ``path``, ``over`` and :meth:`follow`.
    """

    def __init__(self, talker: Talker, root: Path, n_states: int, before: int, name: str = "spoken") -> None:
        self._talker, self._n_states, self.said, self.name = talker, n_states, before, name
        folder = new_run_folder(self.name, root=root)
        self._recorder, self.path = RunRecorder(folder), folder.path
        self._recorder.append(until_now(make_events(n_states)[:before]))
        folder.log.flush()
        self._key = str(self.path)
        talker.hub.add_sink(self._key, self._recorder)

    @property
    def over(self) -> bool:
        """Whether the log is whole."""
        return self._recorder.closed

    def follow(self, follower: Callable[[list[Event]], None]) -> tuple[pa.Table, Callable[[], None]]:
        """As a live run's; see :meth:`kvlab.runtime.run.Run.follow`."""
        self._talker.hub.settle()
        return self._recorder.follow(follower)

    def say(self, n_events: int, per_second: float) -> Any:
        """Let the worker say the next ``n_events``; returns Dask's future of their number.

        Raises
        ------
        KVLabError
            If the run has not so many more.
        """
        first, self.said = self.said, self.said + n_events
        require(self.said <= len(make_events(self._n_states)), "a run has fewer events than it should say", n=self.said)
        return self._talker.client.submit(say, self._key, self._n_states, first, n_events, per_second, pure=False)

    def end(self) -> None:
        """Close the log: whoever follows is told."""
        self._talker.hub.remove_sink(self._key)
        self._recorder.close()


def until_now(events: list[Event]) -> list[Event]:
    """``events`` moved in time so that the last one is now."""
    shift = time.time_ns() - events[-1].time_ns if events else 0
    return [replace(event, time_ns=event.time_ns + shift) for event in events]
