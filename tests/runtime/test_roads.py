"""Every road gives the same tokens, and does what its name says: counted on the wire, in forwarded tokens, in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

import kvlab
from kvlab.errors import InvalidInput
from kvlab.store.events import Kind

TEXT = "The store keeps what was said, and every word of it costs memory. " * 12
ROADS = ["transfer", "hybrid", "recompute"]


def used_bytes(lab: Any) -> int:
    """What is reserved when workers have let go of all that they were told to."""
    lab.core.catalog.leaving.wait()
    found: int = lab.core.catalog.budget.used_bytes
    return found


class Wire:
    """Bytes that crossed as frames, by segment, while it listens."""

    def __init__(self, lab: Any) -> None:
        self.nbytes: dict[str, int] = {}
        self._hub = lab.core.hub
        self._hear_out()
        self._stop = self._hub.listen(self._hear)

    def _hear(self, _: str, event: Any) -> None:
        if event.kind is Kind.SEGMENT_RECEIVED and event.detail["how"] == "transfer":
            self.nbytes[event.segment] = self.nbytes.get(event.segment, 0) + event.nbytes

    def _hear_out(self) -> None:
        time.sleep(0.3)  # workers report every few milliseconds
        self._hub.settle()

    def total(self) -> int:
        self._hear_out()
        self._stop()
        return sum(self.nbytes.values())


@pytest.fixture
def state(frames_lab: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A state on worker-0 of two segments: a text, and an answer to it."""
    first = frames_lab.materialize(request.node.name + TEXT, worker="worker-0")
    yield first.resume(" And then", max_new_tokens=24, worker="worker-0").state
    frames_lab.clear()


@pytest.mark.parametrize("how", ROADS)
def test_every_road_gives_the_same_tokens(frames_lab: Any, state: Any, oracle: Any, how: str) -> None:
    wire = Wire(frames_lab)
    made = state.resume(" so", max_new_tokens=12, worker="worker-1", how=how)
    assert made.how == how
    ids = [*made.state.token_ids, made.token_ids[-1]]
    n_fed = len(ids) - len(made.token_ids)
    assert list(made.token_ids) == oracle.greedy(ids[:n_fed], 12, frozenset({2}))
    crossed = wire.total()
    if how == "transfer":
        assert crossed == state.nbytes
        assert made.n_reused == state.n_tokens
    elif how == "recompute":
        assert crossed == 0
        assert made.n_reused == 0
    else:
        assert 0 < crossed < state.nbytes
        per_token = state.nbytes // state.n_tokens
        assert crossed == made.n_reused * per_token
        assert made.n_prefilled > state.n_tokens - made.n_reused


@pytest.mark.parametrize("how", ROADS)
def test_afterwards_the_whole_state_lies_there(frames_lab: Any, state: Any, how: str) -> None:
    state.resume(" so", max_new_tokens=2, worker="worker-1", how=how)
    assert "worker-1" in state.workers
    wire = Wire(frames_lab)
    again = state.resume(" but", max_new_tokens=2, worker="worker-1")
    assert again.how == "in place"
    assert wire.total() == 0


def test_nothing_of_the_halves_stays_in_the_budget(frames_lab: Any, state: Any) -> None:
    before = used_bytes(frames_lab)
    made = state.resume(" so", max_new_tokens=2, worker="worker-1", how="hybrid")
    added = used_bytes(frames_lab) - before
    per_token = state.nbytes // state.n_tokens
    # a copy of the path on worker-1, and the answer's own tokens
    assert added == state.nbytes + (made.state.n_tokens - state.n_tokens) * per_token


def test_recomputing_where_it_lies_leaves_one_copy(frames_lab: Any, state: Any) -> None:
    used = used_bytes(frames_lab)
    made = state.resume(" so", max_new_tokens=2, worker="worker-0", how="recompute")
    assert (made.how, made.n_reused) == ("recompute", 0)
    answer = made.state.nbytes - state.nbytes
    assert used_bytes(frames_lab) == used + answer


def test_a_road_that_is_not_open_is_refused_by_name(frames_lab: Any, state: Any) -> None:
    with pytest.raises(InvalidInput, match="map is not open") as caught:
        state.resume(" so", worker="worker-1", how="map")
    assert "transfer on worker-1" in caught.value.hint
    with pytest.raises(InvalidInput, match="no road"):
        state.resume(" so", how="teleport")
    assert frames_lab.core.load.queue_seconds("worker-1") == 0


def chain() -> kvlab.Workflow:
    """A long shared context, two agents, and a third that reads both."""
    wf = kvlab.Workflow("roads")
    paper = wf.context("paper", TEXT)
    first = wf.agent("first", [paper, "What is kept?"], max_new_tokens=6)
    second = wf.agent("second", [paper, "What does it cost?"], max_new_tokens=6)
    wf.agent("third", [paper, first, second, "Decide."], max_new_tokens=6)
    return wf


SHARE = 8
"""Tokens: on a tiny model prefill is nearly free, so that no prefix would be worth a task of its own."""


@pytest.mark.parametrize("policy", ["cheapest", "always-transfer", "always-recompute", "threshold(64)"])
def test_every_policy_gives_the_same_answers(frames_lab: Any, policy: str) -> None:
    text = frames_lab.run(chain(), flow="text").wait()
    run = frames_lab.run(chain(), policy=policy, min_shared_tokens=SHARE).wait()
    for agent in ("first", "second", "third"):
        assert run[agent].token_ids == text[agent].token_ids
    edges = run.tables["edges"].to_pylist()
    assert {edge["policy"] for edge in edges} == {policy}
    if policy == "always-recompute":
        assert {edge["actual_how"] for edge in edges} == {"recompute"}
        assert run["third"].turn["n_reused"] == 0
    if policy == "always-transfer":
        assert "recompute" not in {edge["actual_how"] for edge in edges}


def edges_of(run: Any) -> dict[str, dict[str, Any]]:
    return {edge["target"]: edge for edge in run.tables["edges"].to_pylist()}


@pytest.mark.parametrize("how", ROADS)
def test_an_override_decides_its_edge_and_no_other(frames_lab: Any, how: str) -> None:
    graph = frames_lab.compile(chain(), min_shared_tokens=SHARE)
    source = graph.by_id["third"].parent
    run = frames_lab.run(chain(), overrides={f"{source}->third": (how, "worker-1")}, min_shared_tokens=SHARE).wait()
    edge = edges_of(run)["third"]
    assert (edge["chosen"], edge["worker"]) == (how, "worker-1") or "no road here" in edge["reason"]
    plain = frames_lab.run(chain(), min_shared_tokens=SHARE).wait()
    assert run["third"].token_ids == plain["third"].token_ids


def test_overrides_that_cannot_be_meant_are_refused_before_anything_runs(frames_lab: Any) -> None:
    source = frames_lab.compile(chain(), min_shared_tokens=SHARE).by_id["third"].parent
    with pytest.raises(InvalidInput, match="no state edge") as caught:
        frames_lab.run(chain(), overrides={"nobody->third": "transfer"}, min_shared_tokens=SHARE)
    assert f"{source}→third" in caught.value.hint
    with pytest.raises(InvalidInput, match="no worker"):
        frames_lab.run(chain(), overrides={f"{source}→third": ("transfer", "worker-9")}, min_shared_tokens=SHARE)
    with pytest.raises(InvalidInput, match="no road"):
        frames_lab.run(chain(), overrides={f"{source}→third": "teleport"}, min_shared_tokens=SHARE)
    with pytest.raises(InvalidInput, match="policy"):
        frames_lab.run(chain(), policy="whatever")


def test_an_audit_measures_every_road_and_changes_nothing(frames_lab: Any) -> None:
    plain = frames_lab.run(chain(), min_shared_tokens=SHARE).wait()
    used = used_bytes(frames_lab)
    copies = {s.recipe: sorted(frames_lab.core.catalog.copies(s.recipe)) for s in plain["third"].state.record.segments}
    run = frames_lab.run(chain(), min_shared_tokens=SHARE, audit=True).wait()
    assert run["third"].token_ids == plain["third"].token_ids
    for edge in run.tables["edges"].to_pylist():
        alternatives = [(a["how"], a["worker"]) for a in json.loads(edge["alternatives"]) if not a["excluded"]]
        roads = json.loads(edge["audit"])
        assert [(road["how"], road["worker"]) for road in roads] == alternatives
        assert all(road["seconds"] > 0 for road in roads), roads
        assert edge["regret"] >= 0
    assert run.world.bytes_moved == sum(edge["actual_nbytes"] for edge in edges_of(run).values())
    assert used_bytes(frames_lab) == 2 * used
    assert {recipe: sorted(frames_lab.core.catalog.copies(recipe)) for recipe in copies} == copies
    best = frames_lab.run(chain(), min_shared_tokens=SHARE, policy=run.oracle()).wait()
    for edge in edges_of(best).values():
        roads = json.loads(edges_of(run)[edge["target"]]["audit"])
        assert (edge["chosen"], edge["worker"]) == min((r["seconds"], (r["how"], r["worker"])) for r in roads)[1]
    with pytest.raises(InvalidInput, match="not audited"):
        plain.oracle()


def test_a_state_travels_while_what_its_agent_waits_for_is_still_written(frames_lab: Any) -> None:
    wf = kvlab.Workflow("ahead")
    paper = wf.context("paper", TEXT)
    writer = wf.agent("writer", "Write a long answer.", max_new_tokens=160)
    wf.agent("reader", [paper, writer, "Decide."], max_new_tokens=4)
    graph = frames_lab.compile(wf, min_shared_tokens=SHARE)
    source = graph.by_id["reader"].parent
    run = frames_lab.run(wf, min_shared_tokens=SHARE, overrides={f"{source}→reader": "transfer"}).wait()
    edge = edges_of(run)["reader"]
    assert edge["reason"].startswith(f"sent ahead to {edge['worker']}")
    assert (edge["chosen"], edge["actual_how"]) == ("transfer", "transfer")
    assert edge["actual_nbytes"] == edge["nbytes"] > 0
    events = kvlab.open_run(run.path).events.to_pylist()
    came = [e["time_ns"] for e in events if e["kind"] == Kind.SEGMENT_RECEIVED and e["nbytes"]]
    spoken = [e["time_ns"] for e in events if e["kind"] == Kind.TOKENS and e["agent"] == "writer"]
    assert min(came) < max(spoken)
    text = frames_lab.run(wf, flow="text").wait()
    assert run["reader"].token_ids == text["reader"].token_ids
