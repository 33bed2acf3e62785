"""The roads not taken, really taken: each alternative of an edge is run once more under a key of its own and timed.

It happens when a run's work is done, one road at a time on idle workers, so that all of an edge's roads are measured under
equal conditions, the chosen one too. Nothing of it enters the catalog: copies go under throwaway keys, and are let go.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvlab.cost.decide import Decision
from kvlab.cost.roads import Alternative
from kvlab.engine.protocol import Branch
from kvlab.errors import NoRoom, StateGone
from kvlab.runtime import tasks
from kvlab.runtime.catalog import Copy
from kvlab.runtime.core import Core
from kvlab.runtime.halves import behind, joined
from kvlab.runtime.keys import AUDIT
from kvlab.runtime.orders import MODEL_WORK, Order, Work
from kvlab.state.identity import Sampling
from kvlab.state.records import SegmentRecord, StateRecord
from kvlab.state.tokens import BYTES_PER_ID
from kvlab.transport.segment import Segment

DEADLINE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Audited:
    """One road as it was really taken: seconds from the order to the first token, or why it could not be."""

    how: str
    worker: str
    seconds: float | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """All roads of one edge, and what choosing as it was chosen cost over the best of them, as a part of the best."""

    roads: tuple[Audited, ...]
    regret: float | None


def again(name: str, segment: Segment) -> Segment:
    """On a worker: the very same memory as another segment, called ``name``. So it can travel once more."""
    return Segment(replace(segment.header, recipe=name), segment.tensor(), block=segment.block)


class Auditor:
    """Takes roads for the sake of measuring them. ``numbers`` name them: two auditors of one lab share theirs."""

    def __init__(self, core: Core, numbers: Iterator[int] | None = None) -> None:
        self._core = core
        self._numbers = numbers if numbers is not None else itertools.count()

    def audit(self, decision: Decision, parent: StateRecord, branches: Sequence[Branch]) -> Audit:
        """Measure every open road of an edge whose state is ``parent``. Blocks; works on idle workers."""
        open_ones = [road for road in decision.alternatives if road.excluded is None]
        roads = [self._tried(road, parent, branches) for road in open_ones]
        measured = {(one.how, one.worker): one.seconds for one in roads if one.seconds is not None}
        chosen = measured.get((decision.chosen.how, decision.chosen.worker))
        regret = chosen / min(measured.values()) - 1 if chosen is not None else None
        return Audit(tuple(roads), regret)

    def _tried(self, road: Alternative, parent: StateRecord, branches: Sequence[Branch]) -> Audited:
        name = f"{AUDIT}{self._core.catalog.mark}-{next(self._numbers)}"
        budget = self._core.catalog.budget
        try:
            # A copy of the path where it goes, both halves of a hybrid, and the answers' own tokens.
            per_token = self._core.config.bytes_per_token
            room = 3 * parent.nbytes + sum(len(b.ids) // BYTES_PER_ID + 1 for b in branches) * per_token
            budget.reserve(name, room, f"measuring {road.how} on {road.worker}", evict=False)
            return Audited(road.how, road.worker, self._take(name, road, parent, branches))
        except Exception as trouble:  # noqa: BLE001 - the run's work is done, and no measurement may make it fail
            reason = "no room in the KV budget" if isinstance(trouble, NoRoom) else str(trouble) or repr(trouble)
            return Audited(road.how, road.worker, None, reason)
        finally:
            budget.release(name)

    def _take(self, name: str, road: Alternative, parent: StateRecord, branches: Sequence[Branch]) -> float:
        core = self._core
        trip = _Trip(core, name, road)
        sources = [self._source(segment, road) for segment in parent.segments]
        for segment, (copy, source) in zip(parent.segments, sources, strict=True):
            trip.prepare(segment, copy, source)
        trip.settle()
        once = tuple(replace(branch, sampling=replace(branch.sampling, max_new_tokens=1)) for branch in branches)
        return trip.go(parent.segments, once)

    def _source(self, segment: SegmentRecord, road: Alternative) -> tuple[Copy | None, str]:
        """The copy that a road uses, and the worker it comes from; none for what is made again.

        A road that moved the state finds it on its worker now: it comes once more from where it came.
        """
        if segment.recipe in road.again:
            return None, ""
        copies = self._core.catalog.copies(segment.recipe).values()
        there = [(copy, name) for copy in copies for name in sorted(copy.workers) if self._core.address_of(name)]
        wanted = [item for item in there if (item[1] == road.worker) == (road.how == "in place")]
        # Of a longer path, what lay on the worker already has no copy elsewhere: it is used where it is.
        if not wanted and road.how != "in place" and len({name for _, name in there}) == 1:
            wanted = there
        if not wanted:
            raise StateGone(f"segment {segment.recipe[:12]} has no copy there any more", hint="run it again")
        return wanted[0]


class _Trip:
    """One road being taken: futures under throwaway keys, held until it is measured."""

    def __init__(self, core: Core, name: str, road: Alternative) -> None:
        self._core, self._name, self._road = core, name, road
        self._where = {"workers": core.address_of(road.worker), "allow_other_workers": True}
        self._copies: dict[str, Any] = {}
        self._sources: dict[str, list[str]] = {}
        self._held: list[Any] = []

    def prepare(self, segment: SegmentRecord, copy: Copy | None, source: str) -> None:
        """Give the segment a key of its own where it lies, so that the road has to move it."""
        if copy is None:
            return
        key = f"{self._name}-{segment.recipe}"
        where = self._core.address_of(source)
        self._copies[segment.recipe] = self._core.client.submit(
            again, self._name, copy.future, key=key, pure=False, workers=where
        )
        self._sources[segment.recipe] = where

    def settle(self) -> None:
        """Return when everything lies where it starts from."""
        for recipe, future in self._copies.items():
            there = self._core.client.submit(tasks.segment_bytes, future, pure=False, workers=self._sources[recipe])
            there.result(timeout=DEADLINE_SECONDS)

    def go(self, path: Sequence[SegmentRecord], branches: tuple[Branch, ...]) -> float:
        """Seconds from here to the first token."""
        client = self._core.client
        started = time.time_ns()
        found: list[Any] = []
        for segment in path:
            found.append(self._segment(segment, found))
        work: Work = "siblings" if len(branches) > 1 else "resume"
        order = self._order(work, tuple(f"{self._name}-{i}" for i in range(len(branches))), branches)
        if len(branches) > 1:
            bundle = client.submit(
                tasks.run_siblings,
                order,
                *found,
                key=f"{self._name}-all",
                pure=False,
                resources=MODEL_WORK,
                **self._where,
            )
            made = client.submit(tasks.pick, bundle, 0, key=f"{self._name}-one", pure=False, **self._where)
        else:
            made = client.submit(
                tasks.run_one, order, *found, key=f"{self._name}-one", pure=False, resources=MODEL_WORK, **self._where
            )
        header = client.submit(tasks.meta, made, pure=False, **self._where).result(timeout=DEADLINE_SECONDS)
        return float(header["timing"]["first_token_ns"] - started) / 1e9

    def _segment(self, segment: SegmentRecord, found: list[Any]) -> Any:
        client, road, key = self._core.client, self._road, f"{self._name}-{segment.recipe}"
        if segment.recipe in road.again:
            return self._prefilled(f"{key}-again", segment.recipe, segment.token_ids, found)
        copy = self._copies[segment.recipe]
        if road.split is None or road.split.recipe != segment.recipe:
            return copy
        n_front = road.split.front
        front = self._prefilled(f"{key}-front", segment.recipe, segment.token_ids[: n_front * BYTES_PER_ID], found)
        where = self._sources[segment.recipe]
        back = client.submit(behind, n_front, copy, key=f"{key}-back", pure=False, workers=where)
        arrival = client.submit(tasks.touch, back, key=f"{key}-arrival", pure=False, **self._where)
        self._held += [front, back, arrival]
        return client.submit(joined, segment.recipe, front, back, key=f"{key}-joined", pure=False, **self._where)

    def _prefilled(self, key: str, recipe: str, ids: bytes, path: Sequence[Any]) -> Any:
        order = self._order("recompute", (recipe,), (Branch(ids, Sampling(0)),))
        return self._core.client.submit(
            tasks.run_one, order, *path, key=key, pure=False, resources=MODEL_WORK, **self._where
        )

    def _order(self, work: Work, recipes: tuple[str, ...], branches: tuple[Branch, ...]) -> Order:
        core = self._core
        threads = core.threads_for(self._road.worker)
        agents = tuple("" for _ in branches)
        return Order(
            self._name, self._name, work, core.model, agents, recipes, branches, threads, core.chunk, core.beside
        )
