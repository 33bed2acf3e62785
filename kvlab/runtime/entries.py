"""What a catalog knows of one copy, one segment, one state: plain values that change under the catalog's lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvlab.state.lifecycle import Phase
from kvlab.state.records import StateRecord


@dataclass(slots=True)
class Copy:
    """One generation of a segment: the Dask future that holds it, and the workers where it is known to lie.

    ``made_ns`` tells one making of it from another: Dask makes it again under the same key where a worker took it along.
    """

    key: str
    future: Any
    workers: set[str] = field(default_factory=set)
    made_ns: int = 0


@dataclass(slots=True)
class SegmentEntry:
    """A segment that is wanted: its copies by generation, and who wants it.

    ``owners`` are the living states that have it in their path, and the actions that are using or making it.
    ``last_use`` is the moment of the last action on it: moments are counted by :attr:`Catalog.moment`.
    """

    recipe: str
    last_use: int = 0
    copies: dict[int, Copy] = field(default_factory=dict)
    owners: set[str] = field(default_factory=set)


@dataclass(slots=True)
class StateEntry:
    """A state's place in its life, who holds on to it, and the run that it belongs to.

    ``leases`` are deadlines, by the catalog's clock.
    """

    record: StateRecord
    run: str = ""
    phase: Phase = Phase.RESIDENT
    handles: int = 0
    pinned: bool = False
    forgotten: bool = False
    leases: dict[int, float] = field(default_factory=dict)

    def leased(self, now: float) -> float:
        """Seconds until the last of its leases ends; 0 if it has none."""
        return max(0.0, max(self.leases.values(), default=0.0) - now)

    def kept(self, now: float) -> str:
        """Why a person does not let it go: it is pinned, or leased; empty if it may go."""
        if self.pinned:
            return "pinned"
        return f"leased for {self.leased(now):.1f} s more" if self.leased(now) else ""

    def staying(self, now: float) -> str:
        """Why its segments may not leave memory now; empty if they may.

        One that is planned has no claim of its own: whoever makes it claims its whole path.
        """
        going = self.phase in (Phase.PLANNED, Phase.RESIDENT, Phase.SPILLED, Phase.EVICTED)
        return self.kept(now) or ("" if going else str(self.phase))
