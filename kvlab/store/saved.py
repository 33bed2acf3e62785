"""A run on disk, as it can be read: tables, any earlier moment, text and HTML."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from kvlab.errors import InvalidInput, RunUnreadable
from kvlab.store import schema
from kvlab.store.fold import World, fold
from kvlab.store.log import read_log
from kvlab.store.rows import events_of

EVENTS, CONFIG, LOGS, COMPLETE = "events.arrows", "run.json", "logs", "_COMPLETE"


class Tables(Mapping[str, pa.Table]):
    """The tables of a world by name; an unknown name is answered with the nearest."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getitem__(self, name: str) -> pa.Table:
        return self._world.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(schema.TABLES)

    def __len__(self) -> int:
        return len(schema.TABLES)

    def __repr__(self) -> str:
        return "\n".join(f"{name:<12} {self[name].num_rows:>7} rows" for name in self)


class SavedRun:
    """A run folder, read. Nothing in it is changed, and nothing is read before it is asked for.

    A run that is still being written shows what was there when it was opened; :meth:`refresh` looks again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._events: pa.Table | None = None
        self._world: World | None = None

    @property
    def events(self) -> pa.Table:
        """Everything that happened: a table of :data:`kvlab.store.schema.EVENTS`, mapped from the file."""
        if self._events is None:
            self._events = read_log(self.path / EVENTS)
        return self._events

    @property
    def world(self) -> World:
        """The world after all events."""
        if self._world is None:
            self._world = fold(event for _, event in events_of(self.events))
        return self._world

    @property
    def tables(self) -> Tables:
        """Arrow tables after all events, by name."""
        return Tables(self.world)

    @property
    def config(self) -> dict[str, Any]:
        """What ``run.json`` holds; empty if the run was stopped before it was written.

        Raises
        ------
        RunUnreadable
            If it is not JSON.
        """
        file = self.path / CONFIG
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise RunUnreadable(f"{file} is damaged: {error}", hint="restore it, or delete it to go without") from error

    @property
    def name(self) -> str:
        """Name of the workflow, or of the folder while the run has not said it."""
        return self.world.name or self.path.name

    @property
    def complete(self) -> bool:
        """Whether its writer finished it."""
        return (self.path / COMPLETE).exists()

    @property
    def being_written(self) -> bool:
        """Whether a process has its log open for writing. A log that has no writer and no end is a killed run's."""
        with (self.path / EVENTS).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return folder_bytes(self.path)

    def at(self, k: int) -> World:
        """The world after the first ``k`` events.

        Raises
        ------
        InvalidInput
            If there are not that many.
        """
        if not 0 <= k <= self.events.num_rows:
            raise InvalidInput(f"event {k} is outside 0 … {self.events.num_rows}", hint="0 is before the first event")
        return fold(islice((event for _, event in events_of(self.events)), k))

    def refresh(self) -> SavedRun:
        """Look at the file again, and return this run.

        Raises
        ------
        RunUnreadable
            If it is not a run, has nothing whole in it, or a newer kvlab wrote it.
        """
        self._events = read_log(self.path / EVENTS)
        self._world = None
        return self

    def inspect(self, **options: Any) -> Any:
        """The inspector of this run, for a cell. Needs ``kvlab[lab]``."""
        from kvlab.display.views import view

        return view("inspector", self, **options)

    def __repr__(self) -> str:
        from kvlab.display.describe import run_line

        return f"<run {run_line(self)}>"

    def __str__(self) -> str:
        from kvlab.display.describe import describe

        return describe(self)

    def _repr_html_(self) -> str:
        from kvlab.display.report_page import run_html

        return run_html(self)


def folder_bytes(path: Path) -> int:
    """Bytes of all files under ``path``."""
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())
