"""The world: every table of a run, folded from its events. No I/O, no clock, no model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kvlab.store import schema
from kvlab.store.events import Event, Kind
from kvlab.store.fold_memory import MEMORY_HANDLERS
from kvlab.store.fold_work import WORK_HANDLERS

Row = dict[str, Any]


@dataclass(slots=True)
class World:
    """What is known after some events. Equal events give equal worlds, whenever and wherever they are folded.

    Not safe to change from two threads at once.

    Attributes
    ----------
    n_events
        Events folded so far; the number of the last one.
    run
        What ``run.started`` and ``run.finished`` said, with ``started_ns`` and ``finished_ns``.
    bytes_moved
        Bytes of K/V put on a wire so far.
    placed_bytes, peak_placed_bytes
        Bytes of distinct K/V memory that placements account for, now and at most at one moment, over all workers. A
        mapped copy shares the memory of another copy on its host and adds nothing while that one lives.
    sampled, peak_sampled_bytes
        Bytes of K/V that each worker alone held when it was last asked, and the largest sum of them; None before the
        first sample.
    held
        Live placements: segment → worker → row of ``placements``.
    """

    n_events: int = 0
    run: Row = field(default_factory=dict)
    bytes_moved: int = 0
    placed_bytes: int = 0
    peak_placed_bytes: int = 0
    sampled: dict[str, int] = field(default_factory=dict)
    peak_sampled_bytes: int | None = None
    last_event: Event | None = None
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in schema.TABLES})
    _by_key: dict[tuple[str, Any], Row] = field(default_factory=dict, repr=False)
    _built: dict[str, pa.Table] = field(default_factory=dict, repr=False)
    held: dict[str, dict[str, Row]] = field(default_factory=dict, repr=False)

    @classmethod
    def empty(cls) -> World:
        """The world before the first event."""
        return cls()

    @property
    def name(self) -> str:
        """Name of the workflow, or "" before the run has started."""
        return str(self.run.get("name") or "")

    @property
    def flow(self) -> str:
        """``state`` or ``text``; "" before the run has started."""
        return str(self.run.get("flow") or "")

    @property
    def status(self) -> str:
        """``done``, ``failed``, ``cancelled``, ``running``, or ``empty`` before the run has started."""
        return str(self.run.get("status") or ("running" if "started_ns" in self.run else "empty"))

    @property
    def wall_seconds(self) -> float | None:
        """Seconds from start to finish of the run, without those for which it was held; None while it runs."""
        if "finished_ns" not in self.run or "started_ns" not in self.run:
            return None
        held = float(self.run.get("held_seconds") or 0.0)
        return float(self.run["finished_ns"] - self.run["started_ns"]) / 1e9 - held

    @property
    def peak_kv_bytes(self) -> int | None:
        """Peak KV bytes: the larger of what placements account for and what workers measured, unfinished work too.

        Both miss something (samples lie between moments, placements know no unfinished work), so the truth is no less.
        None if neither was told.
        """
        if self.peak_sampled_bytes is None and not self.rows["placements"]:
            return None
        return max(self.peak_placed_bytes, self.peak_sampled_bytes or 0)

    def apply(self, event: Event) -> World:
        """Fold one more event in. Changes this world and returns it."""
        self.n_events += 1
        self.last_event = event
        self._built.clear()
        HANDLERS[event.kind](self, self.n_events, event)
        return self

    def table(self, name: str) -> pa.Table:
        """The table ``name`` as it is now: one of :data:`kvlab.store.schema.TABLES`. Changes nothing.

        Raises
        ------
        KeyError
            If there is no such table; names the nearest.
        """
        if name not in self.rows:
            raise KeyError(schema.unknown_table(name))
        if name not in self._built:
            self._built[name] = pa.Table.from_pylist(self.rows[name], schema=schema.TABLES[name])
        return self._built[name]

    def find(self, table: str, key: Any) -> Row | None:
        """The latest row of ``table`` with this key, or None. The row is the world's own: do not change it."""
        return self._by_key.get((table, key))

    def add_row(self, table: str, key: Any, seq: int, event: Event, **values: Any) -> Row:
        """Add a row born of ``event`` and return it; columns without a value are None. For the handlers."""
        row: Row = dict.fromkeys(schema.TABLES[table].names)
        row.update(seq=seq, time_ns=event.time_ns, **values)
        self.rows[table].append(row)
        self._by_key[table, key] = row
        return row


def fold(events: Iterable[Event]) -> World:
    """The world after ``events``."""
    world = World.empty()
    for event in events:
        world.apply(event)
    return world


HANDLERS: dict[Kind, Callable[[World, int, Event], None]] = {**WORK_HANDLERS, **MEMORY_HANDLERS}
"""What each kind of event does to a world; a test asserts that every kind has its handler."""
