"""What a lab's verbs do, one by one, recorded as a run is.

From the lab's start to its end, so that an inspector may come before, during or after.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlab.runtime.recording import RunRecorder, announce_workers
from kvlab.runtime.workbench import LAB
from kvlab.store.events import Event, Kind
from kvlab.store.fold import World
from kvlab.store.runs import RunFolder

if TYPE_CHECKING:
    import pyarrow as pa

    from kvlab.runtime.core import Core


class Session:
    """The record of a lab's verbs. It lies in the lab's own folder and goes with it; who reads it then still has it.

    Attributes
    ----------
    path
        Its folder, while the lab is open.
    name
        For people.
    """

    def __init__(self, core: Core, path: Path, document: dict[str, Any]) -> None:
        path.mkdir(mode=0o700)
        self.path, self.name = path, "lab"
        self._hub = core.hub
        self._recorder = RunRecorder(RunFolder(path))
        self._kept: pa.Table | None = None
        self._hub.add_sink(LAB, self._recorder)
        self._hub.emit(Kind.RUN_STARTED, LAB, detail={"name": self.name, **document})
        announce_workers(self._hub, LAB, core.living_workers())

    @property
    def status(self) -> str:
        """``running`` until the lab is closed."""
        return self.world.status

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self._kept is not None

    @property
    def world(self) -> World:
        """What has happened so far, folded."""
        self._hub.settle()
        return self._recorder.world

    @property
    def events(self) -> pa.Table:
        """Everything that has happened so far, as in :attr:`kvlab.runtime.run.Run.events`."""
        self._hub.settle()
        return self._kept if self._kept is not None else self._recorder.events()

    def follow(self, follower: Callable[[list[Event]], None]) -> tuple[pa.Table, Callable[[], None]]:
        """As :meth:`kvlab.runtime.run.Run.follow`."""
        self._hub.settle()
        if self._kept is not None:
            return self._kept, lambda: None
        return self._recorder.follow(follower)

    def close(self) -> None:
        """The lab is closing: nothing more is recorded."""
        self._hub.emit(Kind.RUN_FINISHED, LAB, detail={"status": "closed"})
        self._hub.remove_sink(LAB)
        self._recorder.close()
        # Mapped: it stays readable when the folder is gone.
        self._kept = self._recorder.events()
