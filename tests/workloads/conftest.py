"""One lab for all workloads' cases, with another tiny model on its disk, and what to compare answers with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TEXTS = ("another text with other words in it", "weak points, strong points and points between", "say it in one line")


@pytest.fixture(scope="package")
def lab(make_lab: Callable[..., Any]) -> Iterator[Any]:
    """Two workers in processes of their own; states cross as bytes, so that there are roads to choose among."""
    with make_lab(same_host="frames", kv_budget="1 GiB") as made:
        yield made


@pytest.fixture(scope="package")
def other_dir(tiny_model: Any, tiny_model_dir: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another tiny model: other weights and layers, and a tokenizer that cuts words elsewhere."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "another-model"
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir).train_new_from_iterator(TEXTS, 300)
    model = tiny_model(seed=5, num_hidden_layers=2)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def other(lab: Any, other_dir: Path) -> str:
    """Its name, loaded beside the lab's own."""
    name: str = lab.add_model(str(other_dir))
    return name


@pytest.fixture(scope="package")
def cold(tiny_model_dir: str, other_dir: Path) -> Callable[[str, list[int]], list[int]]:
    """``cold(model, ids)``: what unmodified transformers would say after each of the ids."""
    import torch
    from transformers import AutoModelForCausalLM

    folders = {"": tiny_model_dir, other_dir.name: str(other_dir)}
    models = {
        name: AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").float().eval()
        for name, folder in folders.items()
    }

    def greedy(model: str, ids: list[int]) -> list[int]:
        with torch.inference_mode():
            return [int(token) for token in models[model](input_ids=torch.tensor([ids])).logits[0].argmax(-1)]

    return greedy
