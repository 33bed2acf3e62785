"""Labs on a tiny model, real workers in real processes, and unmodified transformers as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kvlab.runtime.lab import Lab

TIE = 2e-4


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """Two workers in processes of their own; states are mapped."""
    with make_lab(kv_budget="1 GiB") as made:
        yield made


@pytest.fixture(scope="module")
def frames_lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """Two workers in processes of their own; states cross as bytes."""
    with make_lab(same_host="frames", kv_budget="1 GiB") as made:
        yield made


class Oracle:
    """Unmodified transformers: SDPA, DynamicCache, one cold forward over all ids."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def logits(self, ids: Sequence[int]) -> Any:
        """``[len(ids), vocabulary]`` fp32."""
        import torch

        with torch.inference_mode():
            return self.model(input_ids=torch.tensor([list(ids)])).logits[0].float()

    def greedy(self, ids: Sequence[int], n_tokens: int, stop: frozenset[int]) -> list[int]:
        """Greedy continuation, every step a cold forward over everything."""
        found: list[int] = []
        for _ in range(n_tokens):
            found.append(int(self.logits([*ids, *found])[-1].argmax()))
            if found[-1] in stop:
                break
        return found


@pytest.fixture(scope="session")
def oracle(tiny_model_dir: str) -> Oracle:
    """The tiny model in transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, attn_implementation="sdpa")
    return Oracle(model.float().eval())


@pytest.fixture(scope="session")
def wide_model_dir(tiny_model: Any, tiny_model_dir: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with 32 KiB of K/V a token: its states take long enough on a wire to be hit there."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("wide")
    model = tiny_model(
        num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, head_dim=64, max_position_embeddings=8192
    )
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    return str(folder)
