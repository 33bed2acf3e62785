"""Pins and leases: what a person wants to stay in memory, however little room there is."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from kvlab.errors import IllegalTransition, InvalidInput, StateGone
from kvlab.runtime.entries import StateEntry
from kvlab.state.lifecycle import Phase, advance

if TYPE_CHECKING:
    from kvlab.runtime.catalog import Catalog


class Keeping:
    """Keeps states of a catalog. Thread-safe: it works under the catalog's lock."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._numbers = itertools.count()

    def pin(self, state: str, *, pinned: bool) -> None:
        """Keep a state in memory, or no longer.

        Raises
        ------
        IllegalTransition
            For a state that is not in memory.
        """
        with self._catalog.lock:
            entry = self._catalog.entry(state)
            if pinned:
                self._require_there(entry, "pinned")
            entry.pinned = pinned

    def lease(self, state: str, seconds: float) -> tuple[int, float]:
        """Keep a state in memory until ``seconds`` from now. Returns the lease's number and its deadline.

        Raises
        ------
        IllegalTransition
            For a state that is not in memory.
        """
        with self._catalog.lock:
            entry = self._catalog.entry(state)
            self._require_there(entry, "leased")
            now = self._catalog.now
            entry.leases = {number: end for number, end in entry.leases.items() if end > now}
            number = next(self._numbers)
            entry.leases[number] = now + seconds
            return number, now + seconds

    def end(self, state: str, number: int) -> None:
        """Give a lease back before its deadline. One that is over, or whose state is gone, is ignored."""
        with self._catalog.lock, contextlib.suppress(StateGone):
            self._catalog.entry(state).leases.pop(number, None)

    def seconds_left(self, state: str, number: int) -> float:
        """How long a lease still runs; 0 if it is over."""
        with self._catalog.lock, contextlib.suppress(StateGone):
            return max(0.0, self._catalog.entry(state).leases.get(number, 0.0) - self._catalog.now)
        return 0.0

    def _require_there(self, entry: StateEntry, what: str) -> None:
        if entry.phase not in (Phase.RESIDENT, Phase.IN_TRANSIT):
            raise IllegalTransition(
                f"state {entry.record.id} is {entry.phase}: only what is in memory can be {what}",
                hint="resume it first, which brings it back",
                state=entry.record.id,
                now=str(entry.phase),
                then=what,
            )

    def require_spillable(self, state: str) -> None:
        """Return if a state is in memory and nobody keeps it there.

        Raises
        ------
        InvalidInput
            If it is pinned or leased.
        IllegalTransition
            If it is not resident.
        """
        with self._catalog.lock:
            entry = self._catalog.entry(state)
            if kept := entry.kept(self._catalog.now):
                raise InvalidInput(f"state {state} is {kept}", hint="unpin it, or release its lease", state=state)
            advance(state, entry.phase, Phase.SPILLED)
