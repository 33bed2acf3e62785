"""A run in which every kind of decision happens once, each decided by ``decide`` in a world of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvlab.cost.decide import CHEAPEST, Decision, Policy, decide
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.cost.policies import Forced
from kvlab.cost.seen import seen
from kvlab.cost.world import Edge, Piece, View, WorkerView
from kvlab.runtime.turns import describe_alternative
from kvlab.store.events import Event, Kind

START_NS = 1_700_000_000_000_000_000
PER_TOKEN = 46_080
NEW_TOKENS = 24
LOST = {"source": "paper", "target": "critic", "n_tokens": 700, "recompute_because": "its tokens differ"}


@dataclass
class Case:
    """One edge: its name, the tokens of its state, where they lie, and what became of the decision."""

    name: str
    n_tokens: int
    on: str = "w0"
    busy: float = 0.0
    rate: float = 400e6
    policy: Policy = CHEAPEST
    hosts: tuple[str, str] = ("a", "b")
    did: str | None = None
    because: str | None = None
    measured: dict[tuple[str, str], float] = field(default_factory=dict)
    excluded: bool = False
    old: bool = False
    carried_out: bool = True

    def decided(self) -> Decision:
        path = (Piece("a", self.n_tokens, self.n_tokens * PER_TOKEN),)
        workers = tuple(
            WorkerView(
                name, host, frozenset({"a"}) if name == self.on else frozenset(), self.busy if name == "w0" else 0.0, 2
            )
            for name, host in zip(("w0", "w1"), self.hosts, strict=True)
        )
        cost = CostModel(PrefillCurve(0.02, 0.0011, 4e-7, 2), DecodeCurve(0.03), Link(0.005, self.rate), 0.002, 0.004)
        edge = Edge(f"paper→{self.name}", "paper", self.name, path, NEW_TOKENS)
        return decide(edge, View(workers, cost, mappable=self.hosts[0] == self.hosts[1]), self.policy)


CASES = (
    Case("reader", 1200),
    Case("mapped", 1200, busy=0.6, hosts=("a", "a")),
    Case("moved", 1200, busy=0.6),
    Case("short", 30, busy=0.6, rate=20e6),
    Case("halved", 3000, busy=4.0, rate=60e6),
    Case("gone", 800, on="nowhere"),
    Case("broken", 1200, busy=0.6, did="recompute", because="planned transfer: w0 did not send segment a within 2 s"),
    Case("audited", 1200, busy=0.6, measured={("transfer", "w1"): 0.31, ("recompute", "w1"): 1.9, ("in place", "w0"): 0.2}),
    Case("forced", 1200, policy=Forced("recompute", "w1")),
    Case("barred", 1200, busy=0.6, excluded=True),
    Case("old", 1200, busy=0.6, old=True),
    Case("waiting", 1200, busy=0.6, carried_out=False),
)  # fmt: skip


def decided_events(cases: tuple[Case, ...] = CASES) -> list[Event]:
    """Events of all cases, one after the other. Seconds of work follow the predictions, a little off."""
    return list(_events(cases))


def _events(cases: tuple[Case, ...]) -> Iterator[Event]:
    number, now = 0, 0.0

    def event(kind: Kind, **values: Any) -> Event:
        nonlocal number
        number += 1
        return Event(kind, START_NS + round(now * 1e9), "conductor", number - 1, **values)

    nodes = [
        {"id": name, "lane": name, "kind": "resume", "max_new_tokens": 8, "known_tokens": 24}
        for name in ("paper", *(c.name for c in cases))
    ]
    edges = [{"source": "paper", "target": c.name, "n_tokens": c.n_tokens, "recompute_because": None} for c in cases]
    nodes.append({"id": "critic", "lane": "critic", "kind": "resume", "max_new_tokens": 8, "known_tokens": 24})
    graph = {"name": "decided", "nodes": nodes, "state_edges": [*edges, LOST], "data_edges": [], "warnings": []}
    yield event(Kind.RUN_STARTED, detail={"name": "decided", "flow": "state", "graph": graph, "policy": "cheapest"})
    for worker in ("w0", "w1"):
        told = {"host": "here", "pid": 1, "device": "cpu", "threads": 2, "memory_bytes": 8 << 30}
        yield event(Kind.WORKER_JOINED, worker=worker, detail=told)
    told = {
        "name": "paper",
        "operator": "materialize",
        "parents": [],
        "segments": ["a"],
        "exact": True,
        "preview": "A paper",
    }
    yield event(Kind.STATE_CREATED, state="s-paper", agent="paper", n_tokens=1200, nbytes=1200 * PER_TOKEN, detail=told)
    for case in cases:
        decision = case.decided()
        chosen = decision.chosen
        alternatives = [describe_alternative(one) for one in decision.alternatives]
        if case.excluded:
            alternatives[-1] |= {"excluded": "no room for 1 224 tokens in the KV budget of w1"}
        detail = {
            "source": "paper", "target": case.name, "n_tokens": case.n_tokens, "alternatives": alternatives,
            "chosen": chosen.how, "worker": chosen.worker, "reason": decision.reason, "policy": decision.policy,
        }  # fmt: skip
        edge = {"edge": f"paper→{case.name}", "agent": case.name}
        yield event(
            Kind.DECISION,
            **edge,
            n_tokens=case.n_tokens,
            detail=detail if case.old else {**detail, "seen": seen(decision)},
        )
        if not case.carried_out:
            continue
        did, took = case.did or chosen.how, chosen.seconds * 1.08
        action = {"action": f"act-{case.name}", "worker": chosen.worker, "agent": case.name}
        yield event(Kind.ACTION_STARTED, **action, detail={"op": "resume", "threads": 2})
        now += took
        if did == "transfer":
            wire = {"segment": "a", "worker": chosen.worker, "nbytes": chosen.nbytes, "seconds": took / 2}
            yield event(Kind.SEGMENT_RECEIVED, **wire, detail={"from": "w0", "how": "frames"})
        now += 0.3
        yield event(Kind.ACTION_FINISHED, **action, seconds=took + 0.3, detail={"op": "resume"})
        again = 0 if did in ("in place", "map", "transfer") else case.n_tokens // (2 if did == "hybrid" else 1)
        turn = {
            "n_prefilled": NEW_TOKENS + again, "n_reused": case.n_tokens - again, "n_generated": 8, "ttft_seconds": took,
            "queue_seconds": 0.0, "prefill_seconds": took, "decode_seconds": 0.3, "overhead_seconds": 0.0, "finish": "length",
            "worker": chosen.worker, "token_ids": [1] * 8, "text": "words", "prompt_tokens": case.n_tokens + NEW_TOKENS,
        }  # fmt: skip
        yield event(
            Kind.TURN_FINISHED, agent=case.name, state=f"s-{case.name}", n_tokens=NEW_TOKENS, seconds=took, detail=turn
        )
        told = {"how": did, "worker": chosen.worker, "nbytes": chosen.nbytes if did == chosen.how else 0,
                "terms": {name: value * 1.08 for name, value in chosen.terms.items()}, "because": case.because}  # fmt: skip
        yield event(Kind.DECISION_ACTUAL, **edge, seconds=took, detail=told)
        if case.measured:
            roads = [
                {"how": how, "worker": on, "seconds": took, "because": ""} for (how, on), took in case.measured.items()
            ]
            regret = case.measured[chosen.how, chosen.worker] / min(case.measured.values()) - 1
            yield event(Kind.DECISION_AUDIT, **edge, detail={"roads": roads, "regret": regret})
    yield event(Kind.SEGMENT_DROPPED, segment="a", worker="w1", nbytes=PER_TOKEN)
    yield event(Kind.RUN_FINISHED, detail={"status": "done", "error": None})
