"""Whose memory it is: bytes by state, and why each may not leave. Pure: reads a catalog's entries, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvlab.runtime.budget import Holder
from kvlab.runtime.entries import SegmentEntry, StateEntry

States = Mapping[str, StateEntry]
Segments = Mapping[str, SegmentEntry]


def number(state: str) -> int:
    """The running number in a state's name: older states have smaller ones."""
    return int(state[1:])


def holders(states: States, segments: Segments, now: float, leaving: int) -> list[Holder]:
    """States with the bytes that each alone or first holds, and why they may not leave now; largest first.

    ``leaving`` bytes are on their way out.
    """
    found = [_holder(entry, states, segments, now) for entry in states.values()]
    if leaving:
        found.append(Holder("on its way out", leaving, frozenset(), "workers have not let it go yet"))
    return sorted((one for one in found if one.nbytes), key=lambda one: -one.nbytes)


def own_bytes(entry: StateEntry, states: States, segments: Segments) -> int:
    """Bytes in memory of a state's segments that no older living state has."""
    mine = {held.recipe for held in _own(entry, states, segments)}
    return sum(segment.nbytes for segment in entry.record.segments if segment.recipe in mine)


def _holder(entry: StateEntry, states: States, segments: Segments, now: float) -> Holder:
    own = list(_own(entry, states, segments))
    devices = frozenset(worker for held in own for copy in held.copies.values() for worker in copy.workers)
    name = f"{entry.record.id} {entry.record.name}".strip()
    reasons = [entry.staying(now), *(_shared(other, states, now) for held in own for other in _others(held, entry))]
    return Holder(name, own_bytes(entry, states, segments), devices, next((why for why in reasons if why), ""))


def _own(entry: StateEntry, states: States, segments: Segments) -> Iterator[SegmentEntry]:
    """Segments in memory of which a state is the oldest holder."""
    for segment in entry.record.segments:
        held = segments.get(segment.recipe)
        holding = [owner for owner in held.owners if owner in states] if held is not None else []
        if held is not None and held.copies and holding and min(holding, key=number) == entry.record.id:
            yield held


def _others(held: SegmentEntry, entry: StateEntry) -> list[str]:
    return sorted(held.owners - {entry.record.id})


def _shared(other: str, states: States, now: float) -> str:
    """Why another owner of a segment does not let it leave memory; empty if it does."""
    if other not in states:
        return f"in use by {other}"
    why = states[other].staying(now)
    return f"part of {other}, which is {why}" if why else ""
