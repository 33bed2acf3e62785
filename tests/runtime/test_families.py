"""Every promised family, over every road that K/V can take, against cold dense runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvlab.errors import StateMismatch

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 4
FAMILIES = [
    pytest.param("qwen2", id="qwen2"),
    pytest.param("llama", id="llama", marks=pytest.mark.slow),
    pytest.param("qwen3", id="qwen3", marks=pytest.mark.slow),
    pytest.param("mistral", id="mistral", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tiny_model: Any, tiny_model_dir: str, tmp_path_factory: Any) -> Any:
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp(request.param)
    model = tiny_model(request.param, seed=5)
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    return folder, model.float()


@pytest.fixture(scope="module", params=["map", pytest.param("frames", marks=pytest.mark.slow)])
def family_lab(request: pytest.FixtureRequest, family: Any, make_lab: Any) -> Iterator[Any]:
    folder, _ = family
    with make_lab(model=str(folder), same_host=request.param, kv_budget="1 GiB") as lab:
        yield lab


def test_every_road_gives_dense_logits(family: Any, family_lab: Any, tmp_path: Path) -> None:
    import torch

    _, model = family

    def check(state: Any) -> None:
        ids = [*state.token_ids, *np.frombuffer(state.record.unfed, dtype="<i4").tolist()]
        with torch.inference_mode():
            dense = model(input_ids=torch.tensor([ids])).logits[0, -1].float().numpy()
        assert np.abs(state.next_logits() - dense).max() < 1e-4

    state = family_lab.materialize(TEXT, worker="worker-0")
    check(state)
    state.transfer("worker-1")
    assert state.workers == ("worker-1",)
    check(state)
    left, right = (
        fork.resume(f" way {index}", max_new_tokens=5, worker="worker-1").state
        for index, fork in enumerate(state.fork(2))
    )
    check(left)
    check(right)
    right.evict()
    state.evict()
    check(right)
    check(left.truncate(left.n_tokens - 3))
    check(family_lab.load(left.save(tmp_path / "left")))


def test_a_state_of_another_model_is_refused_and_says_what_differs(family_lab: Any, lab: Any, tmp_path: Path) -> None:
    folder = family_lab.materialize(TEXT).save(tmp_path / "state")
    with pytest.raises(StateMismatch, match="weights") as caught:
        lab.load(folder)
    assert "weights" in caught.value.data["fields"]
