"""From the clock readings of a header to the metrics of a turn, as :mod:`kvlab.bench.metrics` defines them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from kvlab.bench.metrics import Turn
from kvlab.cost.roads import Alternative
from kvlab.state.records import StateRecord
from kvlab.state.tokens import n_ids, unpack_ids


class Making(NamedTuple):
    """Which making of a segment was meant (0: it is not known), and the workers that had it then."""

    made_ns: int
    workers: tuple[str, ...]


class Timeline:
    """When each worker was busy with this run's work: what of a wait was *queue*."""

    def __init__(self) -> None:
        self._spans: dict[str, dict[tuple[int, int], str]] = {}

    def add(self, worker: str, started_ns: int, finished_ns: int, work: str) -> None:
        """``worker`` did ``work`` from ``started_ns`` to ``finished_ns``. Siblings of one batch share a span."""
        self._spans.setdefault(worker, {})[started_ns, finished_ns] = work

    def busy_ns(self, worker: str, since_ns: int, until_ns: int, own: frozenset[str] = frozenset()) -> int:
        """How long in [since, until] ``worker`` was busy with other work than ``own``."""
        return sum(
            max(0, min(end, until_ns) - max(begin, since_ns))
            for (begin, end), work in self._spans.get(worker, {}).items()
            if work not in own
        )


def turn_of(
    *,
    node: str,
    texts_ready_ns: int,
    states_ready_ns: int,
    own: frozenset[str],
    header: dict[str, Any],
    now_ns: int,
    parent: StateRecord | None,
    text: str,
    timeline: Timeline,
    before: dict[str, bool],
    remade: list[dict[str, Any]],
    made: Mapping[str, Making],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the turn's metrics as plain values, what the state edge really cost: how, worker, terms in seconds, because).

    ``made`` says which making of each segment was meant. Where Dask had to make one again, because a worker took it
    along, that was a recompute whatever was planned, and ``because`` says so; else it is None.

    TTFT counts from ``texts_ready_ns``, when the agent's texts were all there; ``own`` names the states made since then
    on its path, whose making is no queue. The edge's terms count from ``states_ready_ns``, when it could be decided.
    """
    timing = header["timing"]
    worker = str(timing["worker"])
    started, first, finished = timing["started_ns"], timing["first_token_ns"], timing["finished_ns"]
    queue = timeline.busy_ns(worker, texts_ready_ns, started, own) / 1e9
    edge_queue = timeline.busy_ns(worker, states_ready_ns, started) / 1e9
    timeline.add(worker, started, finished, node)
    ttft = (first - texts_ready_ns) / 1e9 - queue
    lost = [
        one
        for one in timing["past"]
        if one["recipe"] in made and made[one["recipe"]].made_ns not in (0, one["made_ns"])
    ]
    recomputing = sum(one["timing"]["prefill_seconds"] for one in remade)
    recomputing += sum(one["making_seconds"] for one in lost)
    timings = {one["recipe"]: one["timing"] for one in remade} | {one["recipe"]: {} for one in lost}
    how, moving, n_moved = _road(timing["past"], before, timings)
    reused = parent.n_tokens if parent is not None else 0
    again = sum(one["timing"].get("again_tokens", n_ids(one["kv_ids"])) for one in remade)
    again += sum(one["n_tokens"] for one in lost)
    prefill, decode = timing["prefill_seconds"], timing["decode_seconds"]
    total = (now_ns - states_ready_ns) / 1e9
    turn = Turn(
        n_prefilled=header["n_prompt"] + again,
        n_reused=reused - again,
        n_generated=n_ids(header["generated"]),
        ttft_seconds=ttft,
        queue_seconds=queue,
        prefill_seconds=prefill + recomputing,
        decode_seconds=decode,
        overhead_seconds=max(0.0, total - edge_queue - max(recomputing, moving) - prefill - decode),
        finish=header["finish"],
        worker=worker,
        token_ids=unpack_ids(header["generated"]),
        text=text,
        prompt_tokens=reused + header["n_prompt"],
    )
    terms = {"queue": edge_queue, "transfer": moving, "prefill": recomputing, "resume": prefill}
    # Bytes travel while the worker is busy or computes the front of a hybrid: then the parts sum to more than passed.
    rest = (first - states_ready_ns) / 1e9 - sum(terms.values())
    terms["overhead"] = max(0.0, rest)
    if rest < 0:
        terms["overlap"] = rest
    actual = {"how": how, "worker": worker, "terms": terms, "nbytes": n_moved, "because": _loss(lost, made, worker)}
    return asdict(turn), actual


def _loss(lost: list[dict[str, Any]], made: Mapping[str, Making], worker: str) -> str | None:
    """What was lost and where it was made again; None if nothing was."""
    if not lost:
        return None
    holders = sorted({name for one in lost for name in made[one["recipe"]].workers})
    n_tokens = sum(one["n_tokens"] for one in lost)
    lost_tokens = "1 token was" if n_tokens == 1 else f"{n_tokens} tokens were"
    return f"{lost_tokens} lost with {' and '.join(holders) or 'a worker'} and made again for {worker}"


def _road(
    past: list[dict[str, Any]], before: dict[str, bool], remade: dict[str, dict[str, Any]]
) -> tuple[str, float, int]:
    """(how the state came to the worker, seconds its bytes were on their way, bytes on a wire or read from disk).

    ``remade`` has the timing of what was made again, by recipe; of a divided segment it tells also of the half that moved.
    """
    came = [one for one in past if not before.get(one["recipe"], False)]
    wires = [(one["seconds"], one["nbytes"]) for one in came if one["arrived"] == "transfer"]
    wires += [(t["transfer_seconds"], t["moved_nbytes"]) for t in remade.values() if t.get("moved_nbytes")]
    seconds, nbytes = max((s for s, _ in wires), default=0.0), sum(size for _, size in wires)
    divided = any("again_tokens" in timing for timing in remade.values())
    read = [(one["seconds"], one["nbytes"]) for one in came if one["arrived"] == "restored"]
    if read:  # one after the other, while other workers send
        reading, size = sum(s for s, _ in read), sum(size for _, size in read)
        return "restore", max(seconds, reading), nbytes + size
    if remade:
        return ("hybrid" if wires or divided else "recompute"), seconds, nbytes
    if wires:
        return "transfer", seconds, nbytes
    mapped = [one["seconds"] for one in came if one["arrived"] == "map"]
    if mapped:
        return "map", max(mapped), 0
    return ("in place" if past else "recompute"), 0.0, 0


def because(planned: str, worker: str, actual: Mapping[str, Any], trouble: str | None = None) -> str | None:
    """Why an edge did something else than ``planned`` on ``worker``; None where it went so, and there was no ``trouble``."""
    trouble = trouble or actual["because"]
    if trouble is None and actual["worker"] != worker:  # placement is loose: an action outlives its worker
        trouble = f"{worker} was lost, and {actual['worker']} did it"
    return f"planned {planned}: {trouble}" if trouble else None


def describe_alternative(alternative: Alternative) -> dict[str, Any]:
    """An alternative as the plain values of a ``decision`` event."""
    return {
        "how": alternative.how,
        "worker": alternative.worker,
        "seconds": alternative.seconds,
        "terms": dict(alternative.terms),
        "nbytes": alternative.nbytes,
        "missing_tokens": alternative.missing_tokens,
        "split": [alternative.split.recipe, alternative.split.front] if alternative.split is not None else None,
        "excluded": alternative.excluded,
    }
