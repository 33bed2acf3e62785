"""Events of a run of the *review* workflow (context, planner, three reviewers, editor), as a runtime would see them.

Costs follow one fixed law (seconds per token prefilled, decoded, moved), so two flows of one workflow compare.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kvlab.bench.metrics import Turn
from kvlab.compiler.graph import DataEdge, Graph, Known, Node, StateEdge
from kvlab.state.identity import Sampling
from kvlab.state.tokens import pack_ids
from kvlab.store.events import Event, Kind
from kvlab.store.graph_document import graph_document

START_NS = 1_700_000_000_000_000_000
BYTES_PER_TOKEN = 46_080
PAPER, QUESTION, ANSWER = 1024, 24, 48
REVIEWERS = ("reviewer-1", "reviewer-2", "reviewer-3")
AGENTS = ("planner", *REVIEWERS, "editor")
ANSWERS = {
    "planner": "1. The sample is small. 2. <b>No</b> baseline & no error bars. 3. Claims exceed the data.",
    "reviewer-1": "With n = 12 no effect of this size can be told from noise.",
    "reviewer-2": "Without a baseline the gain has nothing to stand on.",
    "reviewer-3": "The abstract says “always”; the data say “twice”.",
    "editor": "Major revision: measure against a baseline, soften the abstract. <script>alert(1)</script>",
}

EVIL = "<img src=x onerror=window.hit=1><script>window.hit=1</script>'\"&"


def harmful_events() -> list[Event]:
    """The events of :func:`review_events`, where every name of an agent, context, worker or workflow ends in EVIL."""
    names = re.compile("|".join(map(re.escape, (*AGENTS, "paper", "review", "w0", "w1"))))

    def change(value: Any) -> Any:
        match value:
            case str():
                return names.sub(lambda found: found[0] + EVIL, value)
            case dict():
                return {change(name): change(inner) for name, inner in value.items()}
            case list() | tuple():
                return [change(inner) for inner in value]
        return value

    fields = ("agent", "worker", "state", "segment", "edge", "detail")
    return [
        replace(event, **{name: change(getattr(event, name)) for name in fields}) for event in review_events("state")
    ]


def review_graph() -> Graph:
    """G_s of the review workflow, as the compiler would make it."""
    ids = pack_ids(range(QUESTION))
    paper = Known(pack_ids(range(PAPER)), "paper")
    ask = Known(ids, "text")
    one, draw = Sampling(0), Sampling(ANSWER)
    nodes = [
        Node("context:paper", "materialize", "paper", None, (paper,), (paper,), one),
        Node("planner", "resume", "planner", "context:paper", (ask,), (paper, ask), draw),
    ]
    nodes += [Node(name, "resume", name, "planner", (ask,), (paper, ask, ask), draw) for name in REVIEWERS]
    nodes.append(Node("editor", "resume", "editor", "context:paper", (ask,), (paper, ask), draw, REVIEWERS))
    return Graph(
        "review",
        tuple(nodes),
        tuple(DataEdge(name, "editor") for name in REVIEWERS),
        (
            StateEdge("context:paper", "planner", PAPER),
            *(StateEdge("planner", name, PAPER + QUESTION + ANSWER) for name in REVIEWERS),
            StateEdge("context:paper", "editor", PAPER),
        ),
        (REVIEWERS,),
        ("reviewer-3 reads no text that reviewer-1 does not read too",),
    )


@dataclass
class Teller:
    """Numbers and stamps events."""

    events: list[Event] = field(default_factory=list)
    seconds: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def tell(self, kind: Kind, source: str = "conductor", **values: Any) -> None:
        number = self.numbers.get(source, 0)
        self.numbers[source] = number + 1
        self.events.append(Event(kind, START_NS + round(self.seconds * 1e9), source, number, **values))

    def sample(self, worker: str, change: int) -> None:
        """A worker looks at its memory after K/V came or went."""
        held = self.held[worker] = self.held.get(worker, 0) + change
        detail = {"pss_bytes": (800 << 20) + held, "kv_unique_bytes": held}
        self.tell(Kind.MEMORY, worker, worker=worker, nbytes=held, detail=detail)


def _alternatives(n_tokens: int, prefill: float, link: float, home: str) -> list[dict[str, Any]]:
    nbytes = n_tokens * BYTES_PER_TOKEN
    rows = []
    for worker in ("w0", "w1"):
        there = worker == home
        for how, terms, moved, excluded in (
            ("in place", {"queue": 0.0, "overhead": 0.008, "resume": 0.03}, 0, None if there else "segments are on w0"),
            ("map", {"queue": 0.0, "overhead": 0.008, "transfer": 0.004, "resume": 0.03}, 0, "same_host is frames"),
            (
                "transfer",
                {"queue": 0.0, "overhead": 0.008, "transfer": nbytes / link, "resume": 0.03},
                nbytes,
                "nothing is missing" if there else None,
            ),
            ("recompute", {"queue": 0.0, "overhead": 0.008, "prefill": n_tokens * prefill, "resume": 0.03}, 0, None),
        ):
            rows.append(
                {
                    "how": how,
                    "worker": worker,
                    "seconds": None if excluded else sum(terms.values()),
                    "terms": {} if excluded else terms,
                    "nbytes": moved,
                    "excluded": excluded,
                }
            )
    return rows


def review_events(flow: str = "state", prefill: float = 0.0011, link: float = 60e6) -> list[Event]:
    """All events of one run. ``prefill`` in s per token, ``link`` in bytes per second."""
    teller = Teller()
    tell = teller.tell
    tell(
        Kind.RUN_STARTED,
        detail={
            "name": "review",
            "flow": flow,
            "graph": graph_document(review_graph()),
            "model": {"name": "SmolLM2-135M-Instruct", "weights": "9f2c", "tokenizer": "77aa"},
            "config": {"layers": 30, "kv_heads": 3, "head_dim": 64, "dtype": "float32"},
            "namespace": "default",
            "lab": {"workers": 2, "same_host": "frames", "link_rate_bits": 480e6, "link_latency_seconds": 0.002},
            "environment": {"python": "3.11.9", "torch": "2.13.0", "cpu": "<a laptop>", "cores": 2},
        },
    )
    for worker in ("w0", "w1"):
        detail = {
            "host": "laptop",
            "pid": 4000 + int(worker[1]),
            "device": "cpu",
            "threads": 1,
            "memory_bytes": 4 << 30,
        }
        tell(Kind.WORKER_JOINED, worker=worker, detail=detail)
    if flow == "state":
        _state_flow(teller, prefill, link)
    else:
        _text_flow(teller, prefill)
    teller.seconds += 0.01
    tell(Kind.NOTE, detail={"text": "two best logits of editor differ by 1e-4: a tie", "level": "warning"})
    tell(Kind.RUN_FINISHED, detail={"status": "done", "error": None})
    return teller.events


def _segment(
    teller: Teller, name: str, worker: str, parent: str | None, start: int, n_tokens: int, n_prompt: int
) -> None:
    nbytes = n_tokens * BYTES_PER_TOKEN
    detail = {"parent": parent, "start": start, "n_prompt": n_prompt, "checksum": f"xxh3:{name}"}
    teller.tell(
        Kind.SEGMENT_CREATED, worker, segment=name, worker=worker, n_tokens=n_tokens, nbytes=nbytes, detail=detail
    )
    teller.tell(Kind.SEGMENT_PLACED, worker, segment=name, worker=worker, nbytes=nbytes, detail={"how": "computed"})
    teller.sample(worker, nbytes)


def _state(
    teller: Teller, name: str, agent: str, operator: str, parents: list[str], segments: list[str], n: int
) -> None:
    own = n - (PAPER if operator == "resume" else 0) - (QUESTION + ANSWER if len(segments) == 3 else 0)
    detail = {
        "name": agent,
        "operator": operator,
        "parents": parents,
        "segments": segments,
        "exact": True,
        "note": "",
        "preview": ANSWERS.get(agent, "A paper about <small> samples")[:40],
    }
    teller.tell(Kind.STATE_CREATED, state=name, agent=agent, n_tokens=n, nbytes=own * BYTES_PER_TOKEN, detail=detail)
    teller.tell(Kind.STATE_PHASE, state=name, detail={"now": "materialized", "then": "resident"})


def _turn(
    teller: Teller, agent: str, worker: str, state: str | None, reused: int, prefilled: int, prefill: float
) -> None:
    action = f"a-{agent}"
    teller.tell(Kind.ACTION_PLANNED, action=action, agent=agent, detail={"op": "reason", "subject": agent})
    teller.tell(
        Kind.ACTION_STARTED, worker, action=action, worker=worker, agent=agent, detail={"op": "reason", "threads": 1}
    )
    step = max(1, prefilled // 2)
    for done in (step, prefilled):
        teller.seconds += prefill * prefilled / 2
        teller.tell(
            Kind.PREFILL_CHUNK,
            worker,
            agent=agent,
            worker=worker,
            action=action,
            n_tokens=done,
            detail={"total": prefilled},
        )
    ttft = prefill * prefilled + 0.04
    ids = [(index * 7 + len(agent)) % 900 for index in range(ANSWER)]
    for start in range(0, ANSWER, 16):
        teller.seconds += 16 * 0.02
        some = ids[start : start + 16]
        teller.tell(
            Kind.TOKENS, worker, agent=agent, worker=worker, action=action, n_tokens=len(some), detail={"ids": some}
        )
    teller.tell(
        Kind.ACTION_FINISHED,
        worker,
        action=action,
        worker=worker,
        agent=agent,
        seconds=ttft + 0.96,
        detail={"op": "reason"},
    )
    turn = Turn(
        n_prefilled=prefilled,
        n_reused=reused,
        n_generated=ANSWER,
        ttft_seconds=ttft,
        queue_seconds=0.0,
        prefill_seconds=prefill * prefilled,
        decode_seconds=ANSWER * 0.02,
        overhead_seconds=0.01,
        finish="length",
        worker=worker,
        token_ids=tuple(ids),
        text=ANSWERS[agent],
        prompt_tokens=reused + prefilled,
    )
    detail = {**asdict(turn), "token_ids": ids}
    teller.tell(Kind.TURN_FINISHED, agent=agent, state=state, n_tokens=prefilled, seconds=ttft, detail=detail)


def _edge(
    teller: Teller, source: str, target: str, how: str, worker: str, n_tokens: int, prefill: float, link: float
) -> None:
    alternatives = _alternatives(n_tokens, prefill, link, "w0")
    chosen = next(row for row in alternatives if row["how"] == how and row["worker"] == worker)
    detail = {
        "source": source,
        "target": target,
        "n_tokens": n_tokens,
        "alternatives": alternatives,
        "chosen": how,
        "worker": worker,
        "reason": f"{how} on {worker}: {chosen['seconds']:.2f} s predicted",
    }
    teller.tell(Kind.DECISION, edge=f"{source}->{target}", agent=target, detail=detail)


def _actual(
    teller: Teller, source: str, target: str, how: str, worker: str, seconds: float, because: str | None
) -> None:
    terms = {"queue": 0.0, "overhead": 0.011, {"recompute": "prefill"}.get(how, "transfer"): seconds - 0.011}
    nbytes = (PAPER + QUESTION + ANSWER) * BYTES_PER_TOKEN if how == "transfer" else 0
    detail = {"how": how, "worker": worker, "terms": terms, "nbytes": nbytes, "because": because}
    teller.tell(Kind.DECISION_ACTUAL, edge=f"{source}->{target}", seconds=seconds, detail=detail)


def _move(teller: Teller, segment: str, n_tokens: int, link: float) -> None:
    nbytes = n_tokens * BYTES_PER_TOKEN
    teller.tell(
        Kind.SEGMENT_SENT, "w0", segment=segment, worker="w0", nbytes=nbytes, detail={"to": "w1", "how": "frames"}
    )
    teller.seconds += nbytes / link
    teller.tell(
        Kind.SEGMENT_RECEIVED,
        "w1",
        segment=segment,
        worker="w1",
        nbytes=nbytes,
        seconds=nbytes / link,
        detail={"from": "w0", "how": "frames"},
    )
    teller.tell(Kind.SEGMENT_PLACED, "w1", segment=segment, worker="w1", nbytes=nbytes, detail={"how": "transfer"})
    teller.sample("w1", nbytes)


def _state_flow(teller: Teller, prefill: float, link: float) -> None:
    tell, own = teller.tell, QUESTION + ANSWER
    tell(
        Kind.ACTION_PLANNED,
        action="a-paper",
        agent="context:paper",
        detail={"op": "materialize", "subject": "context:paper"},
    )
    tell(
        Kind.ACTION_STARTED,
        "w0",
        action="a-paper",
        worker="w0",
        agent="context:paper",
        detail={"op": "materialize", "threads": 2},
    )
    for done in (512, PAPER):
        teller.seconds += prefill * 512
        tell(
            Kind.PREFILL_CHUNK,
            "w0",
            agent="context:paper",
            worker="w0",
            action="a-paper",
            n_tokens=done,
            detail={"total": PAPER},
        )
    _segment(teller, "seg-paper", "w0", None, 0, PAPER, PAPER)
    tell(
        Kind.ACTION_FINISHED,
        "w0",
        action="a-paper",
        worker="w0",
        agent="context:paper",
        seconds=PAPER * prefill,
        detail={"op": "materialize"},
    )
    _state(teller, "s0", "context:paper", "materialize", [], ["seg-paper"], PAPER)
    _edge(teller, "context:paper", "planner", "in place", "w0", PAPER, prefill, link)
    _turn(teller, "planner", "w0", "s1", PAPER, QUESTION, prefill)
    _actual(teller, "context:paper", "planner", "in place", "w0", 0.039, None)
    _segment(teller, "seg-planner", "w0", "seg-paper", PAPER, own, QUESTION)
    _state(teller, "s1", "planner", "resume", ["s0"], ["seg-paper", "seg-planner"], PAPER + own)
    for index, name in enumerate(REVIEWERS, 2):
        how, worker = (("in place", "w0"), ("transfer", "w1"), ("transfer", "w1"))[index - 2]
        _edge(teller, "planner", name, how, worker, PAPER + own, prefill, link)
        reused, prefilled, did, because = PAPER + own, QUESTION, how, None
        if index == 3:
            _move(teller, "seg-paper", PAPER, link)
            _move(teller, "seg-planner", own, link)
        if index == 4:
            reused, prefilled, did, because = (
                PAPER,
                QUESTION + own,
                "recompute",
                "w0 did not send seg-planner within 2 s",
            )
        _turn(teller, name, worker, f"s{index}", reused, prefilled, prefill)
        _actual(teller, "planner", name, did, worker, 0.04 if did == "in place" else 0.9, because)
        _segment(teller, f"seg-{name}", worker, "seg-planner", PAPER + own, own, QUESTION)
        _state(
            teller, f"s{index}", name, "resume", ["s1"], ["seg-paper", "seg-planner", f"seg-{name}"], PAPER + 2 * own
        )
    _edge(teller, "context:paper", "editor", "in place", "w0", PAPER, prefill, link)
    _turn(teller, "editor", "w0", "s5", PAPER, QUESTION + 3 * ANSWER, prefill)
    _actual(teller, "context:paper", "editor", "in place", "w0", 0.037, None)
    n_editor = QUESTION + 4 * ANSWER
    _segment(teller, "seg-editor", "w0", "seg-paper", PAPER, n_editor, QUESTION + 3 * ANSWER)
    _state(teller, "s5", "editor", "resume", ["s0"], ["seg-paper", "seg-editor"], PAPER + n_editor)
    tell(Kind.SEGMENT_DROPPED, "w1", segment="seg-reviewer-2", worker="w1", nbytes=own * BYTES_PER_TOKEN)
    teller.sample("w1", -own * BYTES_PER_TOKEN)
    tell(Kind.STATE_PHASE, state="s3", detail={"now": "resident", "then": "evictable"})
    tell(Kind.STATE_PHASE, state="s3", detail={"now": "evictable", "then": "evicted"})


def _text_flow(teller: Teller, prefill: float) -> None:
    """As a text road: K/V of a turn is held while the turn lasts, and no segment is made of it."""
    prompts = {"planner": PAPER + QUESTION, "editor": PAPER + QUESTION + 3 * ANSWER}
    for index, agent in enumerate(AGENTS):
        n_prompt = prompts.get(agent, PAPER + 2 * QUESTION + ANSWER)
        worker = f"w{index % 2}"
        nbytes = (n_prompt + ANSWER) * BYTES_PER_TOKEN
        teller.sample(worker, nbytes)
        _turn(teller, agent, worker, None, 0, n_prompt, prefill)
        teller.sample(worker, -nbytes)
