"""The review workflow on SmolLM2: stateflow, textflow and a cold dense run agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvlab.compiler.resolve import resolve
from kvlab.sample import sample_text
from kvlab.state.tokens import pack_ids, unpack_ids
from kvlab.workloads.review import review

pytestmark = pytest.mark.model
TIE = 2e-4
AGENTS = ("planner", "reviewer-1", "reviewer-2", "reviewer-3", "editor")


@pytest.fixture(scope="module", params=[3_000, pytest.param(None, marks=pytest.mark.slow, id="whole")])
def runs(smol_lab: Any, request: pytest.FixtureRequest) -> tuple[Any, Any]:
    workflow = review(sample_text(request.param), max_new_tokens=24)
    return smol_lab.run(workflow).wait(), smol_lab.run(workflow, flow="text").wait()


def dense_logits(model: Any, ids: tuple[int, ...], last: int) -> Any:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), logits_to_keep=last).logits[0].numpy()


def paths(run: Any, lab: Any) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    outputs = {agent: pack_ids(run[agent].token_ids) for agent in AGENTS}
    return {
        agent: (
            unpack_ids(resolve(run.graph.by_id[agent].full_pieces, outputs, lab.core.tokenizer)),
            run[agent].token_ids,
        )
        for agent in AGENTS
    }


@pytest.mark.timeout(600)
def test_every_stateflow_token_is_the_argmax_of_a_cold_dense_run(
    runs: Any, smol_lab: Any, dense: Any, record_property: Any
) -> None:
    state, _ = runs
    ties: list[tuple[str, int, float]] = []
    for agent, (prompt, said) in paths(state, smol_lab).items():
        logits = dense_logits(dense, (*prompt, *said[:-1]), len(said))
        for position, (row, token) in enumerate(zip(logits, said, strict=True)):
            gap = float(row.max() - row[token])
            assert gap <= TIE, f"{agent}, token {position}: the dense run prefers another by {gap}"
            if int(row.argmax()) != token:
                ties.append((agent, position, gap))
    record_property("ties", ties)


@pytest.mark.timeout(600)
def test_both_flows_prefill_the_same_ids_and_say_the_same(runs: Any, smol_lab: Any) -> None:
    state, text = runs
    mine, theirs = paths(state, smol_lab), paths(text, smol_lab)
    assert {agent: prompt for agent, (prompt, _) in mine.items()} == {
        agent: prompt for agent, (prompt, _) in theirs.items()
    }
    assert {agent: said for agent, (_, said) in mine.items()} == {agent: said for agent, (_, said) in theirs.items()}
    for agent in AGENTS:
        assert state[agent].turn["n_prefilled"] < 200 < text[agent].turn["n_prefilled"]
        assert state[agent].turn["n_reused"] + state[agent].turn["n_prefilled"] == text[agent].turn["n_prefilled"]


@pytest.mark.timeout(600)
def test_logits_of_a_resumed_state_are_within_1e_4_of_dense(runs: Any, dense: Any) -> None:
    state, _ = runs
    ids = (*state["editor"].state.token_ids, state["editor"].token_ids[-1])
    assert np.abs(state["editor"].state.next_logits() - dense_logits(dense, ids, 1)[0]).max() < 1e-4
