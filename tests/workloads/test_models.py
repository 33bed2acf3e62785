"""Two models on one lab's workers: what they say, whose states they use, and what the record says of the edges between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import kvlab
from kvlab.errors import GraphError, InvalidInput

PAPER = "The planner names three weaknesses; the reviewers argue them; the editor writes the verdict. " * 3


def there_and_back(other: str) -> kvlab.Workflow:
    wf = kvlab.Workflow("two-models")
    paper = wf.context("paper", PAPER)
    plan = wf.agent("plan", [paper, "Plan."], max_new_tokens=6)
    check = wf.agent("check", "Check it.", continues=plan, model=other, max_new_tokens=6)
    revise = wf.agent("revise", "Mend it.", continues=check, max_new_tokens=6)
    wf.agent("again", "Check again.", continues=revise, model=other, max_new_tokens=6)
    wf.agent("reader", [paper, check, revise, "Decide."], model=other, max_new_tokens=6)
    return wf


AGENTS = ("plan", "check", "revise", "again", "reader")


@pytest.fixture(scope="module")
def run(lab: Any, other: str) -> Any:
    return lab.run(there_and_back(other), min_shared_tokens=8).wait()


def test_both_flows_and_unmodified_transformers_say_the_same(lab: Any, other: str, run: Any, cold: Any) -> None:
    text = lab.run(there_and_back(other), flow="text").wait()
    for name in AGENTS:
        assert run[name].token_ids == text[name].token_ids
        said = cold(run.graph.by_id[name].model, [*run[name].state.token_ids, run[name].token_ids[-1]])
        assert said[run[name].turn["prompt_tokens"] - 1 : -1] == list(run[name].token_ids)


def test_each_goes_on_from_its_own_states_and_reads_the_others_as_text(lab: Any, other: str, run: Any) -> None:
    assert {name: run[name].state.model.name for name in AGENTS} == {
        name: other if run.graph.by_id[name].model else lab.card.name for name in AGENTS
    }
    assert run["revise"].turn["n_reused"] == run["plan"].state.n_tokens
    assert run["again"].turn["n_reused"] == run["check"].state.n_tokens
    assert run["check"].turn["n_reused"] in (0, *(s.n_tokens for n, s in run.states.items() if n.startswith("context")))
    for name, heard in (("check", "plan"), ("revise", "check"), ("again", "revise")):
        assert run[heard].text in run[name].state.text
    assert run["again"].state.text.index("Plan.") < run["again"].state.text.index("Check again.")


def test_the_edge_between_them_names_what_differs(other: str, run: Any) -> None:
    saved = kvlab.open_run(run.path)
    edges = {row["edge"]: row for row in saved.tables["edges"].to_pylist()}
    refused = {"plan→check", "check→revise", "revise→again"}
    assert refused < set(edges)
    for name in refused:
        row = edges[name]
        assert (row["chosen"], row["actual_how"]) == ("recompute", "recompute")
        for field in ("weights", "tokenizer", "layers"):
            assert f"{field}: " in row["reason"]
        (excluded,) = [one["excluded"] for one in json.loads(row["alternatives"]) if one["excluded"]]
        assert excluded == row["reason"]
    told = [json.loads(event["detail"]) for event in saved.events.to_pylist() if event["kind"] == "decision"]
    fields = {one["target"]: one["fields"] for one in told if "fields" in one}
    assert fields == {name: ["weights", "tokenizer", "layers"] for name in ("check", "revise", "again")}
    assert "cannot be used by" in str(run.graph)
    assert [one["name"] for one in saved.world.run["models"]][1:] == [other]


def test_forecast_and_eviction_take_each_model_at_its_own_price(lab: Any, other: str, run: Any) -> None:
    own, its = lab.core, lab._verbs.models[other].core
    assert own.cost.prefill != its.cost.prefill
    priced = {one.node: one for one in run.graph.forecast.agents}
    for node in run.graph.nodes:
        cost = its.cost if node.model else own.cost
        one = priced[node.id]
        assert one.text_prefill == cost.prefill.seconds(one.n_path)
        assert one.decode == cost.decode.seconds(max(0, node.sampling.max_new_tokens - 1), 1, one.n_path)
    assert lab.core.catalog.evictor.prices == {own.model: own.cost.prefill, its.model: its.cost.prefill}
    made = {segment.recipe: state.record.model for state in run.states.values() for segment in state.record.segments}
    candidates = {one.key: one for one in lab.core.catalog.evictor._candidates(None) if one.key in made}
    assert {made[key] for key in candidates} == {own.model, its.model}
    for key, one in candidates.items():
        core = own if made[key] == own.model else its
        assert one.fixed_seconds == core.cost.prefill.a
        held = next(s for state in run.states.values() for s in state.record.segments if s.recipe == key)
        assert one.nbytes in {n * held.n_tokens * core.config.bytes_per_token for n in (1, 2)}  # on one worker, or both
    assert own.config.bytes_per_token != its.config.bytes_per_token


def test_a_state_of_the_other_model_is_resumed_by_it(other: str, run: Any) -> None:
    more = run["check"].state.resume(" And", max_new_tokens=4)
    assert more.state.model.name == other
    assert more.n_reused == run["check"].state.n_tokens
    assert more.state.text.startswith(run["check"].state.text[:-12])


@pytest.mark.slow
def test_a_worker_that_starts_again_loads_the_other_model_when_it_is_asked(lab: Any, other: str, run: Any) -> None:
    before = {name: worker.pid for name, worker in lab.workers.items()}
    os.kill(before["worker-0"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while lab.workers["worker-0"].pid == before["worker-0"] or not lab.workers["worker-0"].address:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    again = lab.run(there_and_back(other), workers=["worker-0"], min_shared_tokens=8).wait()
    assert {name: again[name].token_ids for name in AGENTS} == {name: run[name].token_ids for name in AGENTS}


def test_models_that_are_not_there_are_refused(lab: Any, other: str, tiny_model_dir: str, tmp_path: Path) -> None:
    wf = kvlab.Workflow("w")
    wf.agent("one", "Begin.", model="a third")
    with pytest.raises(GraphError, match="'a third', and this lab has") as caught:
        lab.compile(wf)
    assert "lab.add_model" in caught.value.hint
    assert lab.add_model(tiny_model_dir) == lab.card.name
    shutil.copytree(tiny_model_dir, tmp_path / other)
    with pytest.raises(InvalidInput, match=f"another '{other}'"):
        lab.add_model(str(tmp_path / other))
