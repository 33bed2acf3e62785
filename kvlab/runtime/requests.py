"""What an action asks for."""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.cost.roads import Alternative
from kvlab.engine.protocol import Branch
from kvlab.state.records import SegmentRecord, StateRecord


@dataclass(frozen=True, slots=True)
class Request:
    """Branches to compute on the state of ``parent`` (None: from the root), on one worker.

    ``road`` says which segments of the path are made again there, and which one is divided; without one, only what has
    no copy is made. Without ``evict`` it finds room as it is, or none.
    """

    action: str
    run: str
    namespace: str
    parent: StateRecord | None
    agents: tuple[str, ...]
    branches: tuple[Branch, ...]
    worker: str
    threads: int
    road: Alternative | None = None
    evict: bool = True

    @property
    def path(self) -> tuple[SegmentRecord, ...]:
        """Segments it works on."""
        return self.parent.segments if self.parent is not None else ()
