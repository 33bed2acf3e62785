"""How each segment of a path comes to a worker, and the room that this takes: planned whole, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kvlab.runtime.budget import Wanted
from kvlab.runtime.core import Core
from kvlab.runtime.entries import Copy
from kvlab.runtime.remote_errors import FAILED
from kvlab.runtime.requests import Request
from kvlab.state.records import SegmentRecord
from kvlab.store.spill import Spilled


@dataclass(frozen=True, slots=True)
class Step:
    """One segment of a path.

    Attributes
    ----------
    how
        ``use`` a copy as it lies, or ``read``, ``prefill`` or ``join`` a new generation.
    copy
        What is used, or what a half of it is taken from.
    file
        What is read.
    n_front
        Tokens of the half that is prefilled.
    here
        Whether the worker had it before.
    rooms
        What has to be set aside for it.
    """

    segment: SegmentRecord
    how: Literal["use", "read", "prefill", "join"]
    generation: int
    key: str
    copy: Copy | None = None
    file: Spilled | None = None
    n_front: int = 0
    here: bool = False
    rooms: tuple[Wanted, ...] = ()


def steps(core: Core, request: Request) -> Iterator[Step]:
    """The steps of a request's path, from the root. Changes nothing but that it gives out generations.

    What has no copy, and what the road says, is made again; what the road divides is joined.
    """
    worker, road = request.worker, request.road
    rooms: tuple[Wanted, ...]
    again, read = (road.again, road.restored) if road is not None else ((), ())
    split = road.split if road is not None else None
    for segment in request.path:
        recipe = segment.recipe
        copies = living_copies(core, recipe)
        here = {generation: copy for generation, copy in copies.items() if worker in copy.workers}
        usable = max((here or copies).items(), default=None)
        if usable is None or recipe in again or (recipe in read and not here):
            generation, key = core.catalog.next_key(recipe)
            file = core.catalog.file_of(recipe) if recipe not in again else None
            rooms = (Wanted(key, segment.nbytes, worker),)
            yield Step(
                segment,
                "read" if file is not None else "prefill",
                generation,
                key,
                file=file,
                here=bool(here),
                rooms=rooms,
            )
        elif split is not None and split.recipe == recipe and not here:
            generation, key = core.catalog.next_key(recipe)
            # Until they are joined both halves lie here, and the back once more where it was cut.
            meanwhile = 2 * segment.nbytes - split.front * core.config.bytes_per_token
            rooms = (Wanted(key, segment.nbytes, worker), Wanted(f"{key}@halves", meanwhile, worker))
            yield Step(segment, "join", generation, key, usable[1], n_front=split.front, rooms=rooms)
        else:
            generation, copy = usable
            rooms = () if here else tuple(replica(core, copy, segment, worker))
            yield Step(segment, "use", generation, copy.key, copy, here=bool(here), rooms=rooms)


def living_copies(core: Core, recipe: str) -> dict[int, Copy]:
    """Copies of a segment that are there or on their way. One whose making failed is given up: its key keeps the error."""
    copies = core.catalog.copies(recipe)
    for generation in [number for number, copy in copies.items() if copy.future.status in FAILED]:
        core.catalog.discard_copy(recipe, generation)
        del copies[generation]
    return copies


def replica(core: Core, copy: Copy, segment: SegmentRecord, worker: str, *, keeps: bool = False) -> Sequence[Wanted]:
    """Bytes that cross to ``worker`` lie there a second time; a mapped copy takes no memory of its own.

    With ``keeps`` the worker will be the one that holds it, so that a mapped copy counts on its device, too.
    """
    hosts = {core.workers[name].host for name in copy.workers if name in core.workers}
    crosses = core.same_host == "frames" or core.workers[worker].host not in hosts
    if crosses or keeps:
        return [Wanted(f"{copy.key}@{worker}", segment.nbytes, worker, None if crosses else 0)]
    return []
