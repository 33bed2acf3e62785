"""A log of many events through the real store, for tests and benchmarks of views: rounds of agents that hand on states.

Only views are tried on it. What it says about time is drawn by chance, so nothing about kvlab's speed can be read from it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvlab.cost.decide import decide
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.roads import Alternative, roads_for
from kvlab.cost.seen import seen
from kvlab.cost.world import Edge, Piece, View, WorkerView
from kvlab.runtime.turns import describe_alternative
from kvlab.store.events import Event, Kind
from kvlab.store.runs import new_run_folder

START_NS = 1_700_000_000_000_000_000
PER_TOKEN = 46_080
AGENTS = ("planner", "reader-1", "reader-2", "reader-3", "critic-1", "critic-2", "coder", "tester", "memory", "summary",
          "judge", "editor")  # fmt: skip
COST = CostModel(
    PrefillCurve(0.012, 0.00032, 1.6e-8, 2),
    DecodeCurve(0.03),
    Link(0.004, 1.4e8),
    map_seconds=0.002,
    task_seconds=0.004,
    copy_bytes_per_second=2e9,
)
THREADS = 2
NEW_TOKENS = 48
BUSY = 0.3
"""Share of workers that are at work when an edge is decided."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A policy that takes the road it is told to take, so that a run has all kinds of decisions."""

    wanted: Alternative
    name: str = "drawn"

    def allowed(self, edge: Edge, ranked: Sequence[Alternative]) -> Sequence[Alternative]:  # noqa: ARG002 - a policy
        """The one road."""
        return [one for one in ranked if one == self.wanted]


class Teller:
    """Numbers and stamps events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.seconds = 0.0
        self._numbers: dict[str, int] = {}

    def tell(self, kind: Kind, source: str = "conductor", **values: Any) -> None:
        """``kind`` happened at ``source``, now."""
        number = self._numbers.get(source, 0)
        self._numbers[source] = number + 1
        self.events.append(Event(kind, START_NS + round(self.seconds * 1e9), source, number, **values))


def make_events(n_states: int, *, agents: int = 12, workers: int = 4, alive: int = 240, seed: int = 3) -> list[Event]:
    """Events of a run of ``n_states`` states, of which about ``alive`` are resident at a time."""
    return list(_events(n_states, agents, workers, alive, seed))


@lru_cache(maxsize=4)
def _events(n_states: int, agents: int, workers: int, alive: int, seed: int) -> tuple[Event, ...]:
    chance, teller = random.Random(seed), Teller()  # noqa: S311  the same run every time
    names = [AGENTS[i] if i < len(AGENTS) else f"agent-{i}" for i in range(agents)]
    places = [f"w{i}" for i in range(workers)]
    detail = {"name": "generated", "flow": "state", "lab": {"workers": places, "cost": COST.as_dict()}, "policy": "cheapest",
              "config": {"bytes_per_token": PER_TOKEN, "dtype": "float32"}}  # fmt: skip
    teller.tell(Kind.RUN_STARTED, detail=detail)
    for place in places:
        told = {"host": "here", "pid": 1, "device": "cpu", "threads": 2, "memory_bytes": 8 << 30}
        teller.tell(Kind.WORKER_JOINED, worker=place, detail=told)
    tokens: list[int] = []
    where: list[str] = []
    latest: dict[str, int] = {}
    living: list[int] = []
    for state in range(n_states):
        agent = names[state % agents]
        draw = chance.random()
        own_parent = latest.get(agent)
        others = [latest[name] for name in names if name in latest and name != agent]
        parents: list[int] = []
        if own_parent is not None and (draw < 0.7 or not others):
            parents.append(own_parent)
        elif others:
            parents.append(chance.choice(others))
        operator = "materialize" if not parents else "resume" if parents[0] == own_parent else "fork"
        if parents and draw > 0.93 and others:
            parents.append(chance.choice(others))
            operator = "merge"
        worker = where[parents[0]] if parents and chance.random() < 0.5 else chance.choice(places)
        own = chance.randrange(16, 160)
        total = own + (tokens[parents[0]] if parents else 0)
        if total > 6000:
            total = own
        if parents:
            _decide(teller, chance, parents[0], state, agent, tokens[parents[0]], where[parents[0]], worker, places)
        _work(teller, chance, state, agent, operator, worker, own)
        segment = f"seg-{state}"
        made = {"parent": None, "start": total - own, "n_prompt": own, "checksum": "x"}
        teller.tell(Kind.SEGMENT_CREATED, worker, segment=segment, worker=worker, nbytes=own * PER_TOKEN, n_tokens=own,
                    detail=made)  # fmt: skip
        teller.tell(Kind.SEGMENT_PLACED, worker, segment=segment, worker=worker, nbytes=own * PER_TOKEN,
                    detail={"how": chance.choice(("computed", "transfer", "map"))})  # fmt: skip
        teller.tell(
            Kind.STATE_CREATED, state=f"s{state}", agent=agent, n_tokens=total, nbytes=own * PER_TOKEN,
            detail={"name": agent, "operator": operator, "parents": [f"s{one}" for one in parents], "segments": [segment],
                    "exact": chance.random() < 0.98, "note": "", "preview": f"words of {agent}"},
        )  # fmt: skip
        tokens.append(total)
        where.append(worker)
        latest[agent] = state
        living.append(state)
        if len(living) > alive:
            gone = living.pop(chance.randrange(len(living) // 2))
            teller.tell(
                Kind.SEGMENT_DROPPED, where[gone], segment=f"seg-{gone}", worker=where[gone], nbytes=PER_TOKEN * 40
            )
            teller.tell(Kind.STATE_PHASE, state=f"s{gone}", detail={"now": "evictable", "then": "evicted"})
    teller.tell(Kind.RUN_FINISHED, detail={"status": "done", "error": None})
    return tuple(teller.events)


def _decide(
    teller: Teller, chance: random.Random, source: int, target: int, agent: str, n_tokens: int, home: str, worker: str,
    places: list[str],
) -> None:  # fmt: skip
    path = (Piece(f"seg-{source}", n_tokens, n_tokens * PER_TOKEN),)
    workers = tuple(
        WorkerView(
            place, "ab"[2 * number // len(places)], frozenset({f"seg-{source}"} if place == home else ()),
            round(chance.expovariate(20), 4) if chance.random() < BUSY else 0.0, THREADS,
        )
        for number, place in enumerate(places)
    )  # fmt: skip
    asked, view = Edge(f"s{source}→s{target}", f"s{source}", f"s{target}", path, NEW_TOKENS), View(workers, COST)
    road = chance.choice([one for one in roads_for(asked, view) if one.worker == worker and one.excluded is None])
    decision = decide(asked, view, Drawn(road))
    teller.tell(
        Kind.DECISION, edge=asked.id, agent=agent, n_tokens=n_tokens,
        detail={"source": asked.source, "target": asked.target, "n_tokens": n_tokens,
                "alternatives": [describe_alternative(one) for one in decision.alternatives], "chosen": road.how,
                "worker": worker, "reason": decision.reason, "policy": decision.policy, "seen": seen(decision)},
    )  # fmt: skip
    did = road.how if chance.random() < 0.95 else "recompute"
    took = road.seconds * chance.lognormvariate(0, 0.15)
    detail = {"how": did, "worker": worker, "nbytes": road.nbytes if did == road.how else 0, "terms": {"overhead": took},
              "because": None if did == road.how else "it did not come in time"}  # fmt: skip
    teller.tell(Kind.DECISION_ACTUAL, edge=asked.id, agent=agent, seconds=took, detail=detail)


def _work(
    teller: Teller, chance: random.Random, state: int, agent: str, operator: str, worker: str, own: int
) -> None:  # fmt: skip
    action = {"action": f"a{state}", "worker": worker, "agent": agent}
    teller.tell(Kind.ACTION_STARTED, worker, **action, detail={"op": operator, "threads": 1})
    seconds = 0.01 + own * 0.0004 * chance.uniform(0.7, 1.3)
    teller.seconds += seconds
    teller.tell(Kind.ACTION_FINISHED, worker, **action, seconds=seconds, detail={"op": operator})


def write_run(root: Path, events: list[Event], *, complete: bool = True) -> Path:
    """Write ``events`` as a run folder under ``root``, through the store."""
    folder = new_run_folder("generated", root=root)
    folder.write_config({})
    folder.log.append(events)
    if complete:
        folder.complete()
    else:
        folder.log.flush()
    return folder.path
