"""Model names and cards: what is found, what is said about it before loading, and what is said when it is not found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvlab.engine import embedded
from kvlab.engine.models import describe, resolve
from kvlab.errors import ModelNotFound
from kvlab.progress import SILENT

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "phi3", "gemma", "opt")


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network for the hub's client and an empty hub cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_card_agrees_with_the_loaded_model(family: str, tiny_model, tmp_path: Path) -> None:
    import torch

    one_kv_head_a_head = {"num_key_value_heads": None} if family in ("gpt2", "gpt_neox", "opt") else {}
    model = tiny_model(family, **one_kv_head_a_head)
    model.save_pretrained(tmp_path)
    card = describe(tmp_path)

    cache = model(torch.tensor([[5, 6, 7]]), use_cache=True).past_key_values
    assert card.layers == len(cache.layers)
    _, kv_heads, n_tokens, head_dim = cache.layers[0].keys.shape
    assert (card.kv_heads, card.head_dim) == (kv_heads, head_dim)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert card.kv_bytes_per_token("float32") * n_tokens == held
    assert card.kv_bytes_per_token("bfloat16") * 2 * n_tokens == held
    assert card.n_parameters == model.num_parameters()
    assert card.weight_bytes("float32") == sum(parameter.nbytes for parameter in model.parameters())
    assert card.max_positions == model.config.max_position_embeddings == 1024
    assert (card.name, card.family, card.dtype) == (tmp_path.name, family, "float32")


def test_a_card_of_many_files_counts_each_weight_once(tiny_model, tmp_path: Path) -> None:
    model = tiny_model("llama")
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    shutil.copy(next(tmp_path.glob("*.safetensors")), tmp_path / "consolidated.safetensors")
    assert describe(tmp_path).n_parameters == model.num_parameters()


def test_a_card_says_what_the_weights_are_on_disk(tiny_model, tmp_path: Path) -> None:
    import torch

    tiny_model("llama", dtype=torch.bfloat16).save_pretrained(tmp_path)
    assert describe(tmp_path).dtype == "bfloat16"


def test_describing_loads_no_heavy_library(tiny_model_dir: str) -> None:
    program = (
        "import sys; from kvlab.engine.models import describe; print(describe(sys.argv[1]).layers); "
        "print(sorted({'torch', 'transformers', 'numpy', 'huggingface_hub', 'distributed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, tiny_model_dir], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["3", "[]"]


def test_a_folder_is_found_as_it_is(tiny_model_dir: str) -> None:
    assert resolve(tiny_model_dir, SILENT) == Path(tiny_model_dir)
    assert resolve(Path(tiny_model_dir), SILENT) == Path(tiny_model_dir)


@pytest.mark.parametrize("removed", ["config.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_refused_with_its_name(tiny_model_dir: str, tmp_path: Path, removed: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_dir, folder)
    (folder / removed).unlink()
    with pytest.raises(ModelNotFound, match=removed.replace("model", "")):
        resolve(folder, SILENT)


def test_weights_that_were_cut_off_are_refused(tiny_model_dir: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_dir, folder)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for kept in (0, 7, 100):
        weights.write_bytes(whole[:kept])
        with pytest.raises(ModelNotFound, match="cut off"):
            describe(folder)


def test_a_configuration_without_a_size_is_refused_with_its_name(tiny_model_dir: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_dir, folder)
    written = json.loads((folder / "config.json").read_text())
    del written["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(written))
    with pytest.raises(ModelNotFound, match="num_hidden_layers"):
        describe(folder)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", ["smolm2", "HuggingfaceTB/SmolLM2-135M", "./nowhere", "/nowhere/smollm2", "a/b/c"])
def test_an_unknown_name_is_answered_with_a_near_one(name: str) -> None:
    with pytest.raises(ModelNotFound) as raised:
        resolve(name, SILENT)
    assert "smollm2" in raised.value.hint.lower()


@pytest.mark.usefixtures("no_hub")
def test_models_in_the_hubs_cache_are_suggested(tmp_path: Path) -> None:
    (tmp_path / "hub" / "models--Qwen--Qwen2.5-0.5B-Instruct").mkdir(parents=True)
    with pytest.raises(ModelNotFound) as raised:
        resolve("Qwen/Qwen2.5-0.5B", SILENT)
    assert "Qwen/Qwen2.5-0.5B-Instruct" in raised.value.hint


@pytest.mark.model
@pytest.mark.usefixtures("no_hub")
def test_the_embedded_model_is_never_looked_for_on_a_hub() -> None:
    assert resolve("smollm2", SILENT) == resolve(embedded.NAME, SILENT) == embedded.model_folder()
    card = describe(embedded.model_folder())
    assert (card.name, card.license) == (embedded.NAME, "Apache-2.0")
    assert (card.layers, card.kv_heads, card.head_dim, card.max_positions) == (30, 3, 64, 8192)
    assert card.kv_bytes_per_token("float32") == 46_080
    assert "134,515,008" in str(card)
