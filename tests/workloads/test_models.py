"""Two models on one lab's workers: what they say, whose states they use, and what the record says of the edges between."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kvlab
from kvlab.errors import GraphError, InvalidInput

PAPER = "The planner names three weaknesses; the reviewers argue them; the editor writes the verdict. " * 3
OTHER = "another-model"
TEXTS = ("another text with other words in it", "weak points, strong points and points between", "say it in one line")


@pytest.fixture(scope="module")
def other_dir(tiny_model: Any, tiny_model_dir: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another tiny model: other weights and layers, and a tokenizer that cuts words elsewhere."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / OTHER
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir).train_new_from_iterator(TEXTS, 300)
    model = tiny_model(seed=5, num_hidden_layers=2)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Any], other_dir: str) -> Iterator[Any]:
    with make_lab(same_host="frames", kv_budget="1 GiB") as made:
        assert made.add_model(other_dir) == OTHER
        yield made


def there_and_back() -> kvlab.Workflow:
    wf = kvlab.Workflow("two-models")
    paper = wf.context("paper", PAPER)
    plan = wf.agent("plan", [paper, "Plan."], max_new_tokens=6)
    check = wf.agent("check", "Check it.", continues=plan, model=OTHER, max_new_tokens=6)
    revise = wf.agent("revise", "Mend it.", continues=check, max_new_tokens=6)
    wf.agent("again", "Check again.", continues=revise, model=OTHER, max_new_tokens=6)
    wf.agent("reader", [paper, check, revise, "Decide."], model=OTHER, max_new_tokens=6)
    return wf


AGENTS = ("plan", "check", "revise", "again", "reader")


@pytest.fixture(scope="module")
def run(lab: Any) -> Any:
    return lab.run(there_and_back(), min_shared_tokens=8).wait()


def test_both_flows_and_unmodified_transformers_say_the_same(
    lab: Any, run: Any, tiny_model_dir: str, other_dir: str
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    text = lab.run(there_and_back(), flow="text").wait()
    folders = {"": tiny_model_dir, OTHER: other_dir}
    cold = {name: AutoModelForCausalLM.from_pretrained(path).float().eval() for name, path in folders.items()}
    for name in AGENTS:
        assert run[name].token_ids == text[name].token_ids
        ids = torch.tensor([[*run[name].state.token_ids, run[name].token_ids[-1]]])
        with torch.inference_mode():
            said = cold[run.graph.by_id[name].model](input_ids=ids).logits[0].argmax(-1).tolist()
        assert said[run[name].turn["prompt_tokens"] - 1 : -1] == list(run[name].token_ids)


def test_each_goes_on_from_its_own_states_and_reads_the_others_as_text(lab: Any, run: Any) -> None:
    assert {name: run[name].state.model.name for name in AGENTS} == {
        name: OTHER if run.graph.by_id[name].model else lab.card.name for name in AGENTS
    }
    assert run["revise"].turn["n_reused"] == run["plan"].state.n_tokens
    assert run["again"].turn["n_reused"] == run["check"].state.n_tokens
    assert run["check"].turn["n_reused"] in (0, *(s.n_tokens for n, s in run.states.items() if n.startswith("context")))
    for name, heard in (("check", "plan"), ("revise", "check"), ("again", "revise")):
        assert run[heard].text in run[name].state.text
    assert run["again"].state.text.index("Plan.") < run["again"].state.text.index("Check again.")


def test_the_edge_between_them_names_what_differs(run: Any) -> None:
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
    assert [one["name"] for one in saved.world.run["models"]][1:] == [OTHER]


def test_a_state_of_the_other_model_is_resumed_by_it(run: Any) -> None:
    more = run["check"].state.resume(" And", max_new_tokens=4)
    assert more.state.model.name == OTHER
    assert more.n_reused == run["check"].state.n_tokens
    assert more.state.text.startswith(run["check"].state.text[:-12])


def test_a_worker_that_starts_again_loads_the_other_model_when_it_is_asked(lab: Any, run: Any) -> None:
    import time

    before = {name: worker.pid for name, worker in lab.workers.items()}
    os.kill(before["worker-0"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while lab.workers["worker-0"].pid == before["worker-0"] or not lab.workers["worker-0"].address:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    again = lab.run(there_and_back(), workers=["worker-0"], min_shared_tokens=8).wait()
    assert {name: again[name].token_ids for name in AGENTS} == {name: run[name].token_ids for name in AGENTS}


def test_models_that_are_not_there_are_refused(lab: Any, tiny_model_dir: str, tmp_path: Any) -> None:
    wf = kvlab.Workflow("w")
    wf.agent("one", "Begin.", model="a third")
    with pytest.raises(GraphError, match="'a third', and this lab has") as caught:
        lab.compile(wf)
    assert "lab.add_model" in caught.value.hint
    assert lab.add_model(tiny_model_dir) == lab.card.name
    import shutil

    shutil.copytree(tiny_model_dir, tmp_path / OTHER)
    with pytest.raises(InvalidInput, match=f"another '{OTHER}'"):
        lab.add_model(str(tmp_path / OTHER))
