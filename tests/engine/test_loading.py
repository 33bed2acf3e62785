"""Loading from a directory: identity from bytes, dtype and device, and what is missing."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvlab.engine.fingerprint import weights_digest
from kvlab.engine.loading import load_engine
from kvlab.errors import InvalidInput, ModelNotFound, ModelRefused
from kvlab.state.tokens import pack_ids


@pytest.fixture(scope="module")
def loaded(tiny_model_dir):
    return load_engine(tiny_model_dir)


def test_a_saved_model_gives_transformers_logits(loaded, tiny_model_dir, tokens):
    ids = tokens(30)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    made = loaded.prefill(pack_ids(ids), [], loaded.new_payload)
    torch.testing.assert_close(made.last_logits, model(torch.tensor([ids])).logits[0, -1].detach(), atol=1e-4, rtol=0)


def test_identity_is_the_bytes_of_weights_and_tokenizer(loaded, tiny_model_dir):
    again = load_engine(tiny_model_dir, name="another name")
    assert loaded.identity.name == Path(tiny_model_dir).name
    assert again.identity.name == "another name"
    assert again.identity.weights == loaded.identity.weights
    raw = (Path(tiny_model_dir) / "tokenizer.json").read_bytes()
    assert loaded.identity.tokenizer == hashlib.sha256(raw).hexdigest()


def test_the_digest_sees_one_changed_weight_and_not_where_weights_lie(tiny_model):
    model, same = tiny_model(), tiny_model()
    assert weights_digest(model) == weights_digest(same)
    same.model.layers[1].mlp.up_proj.weight.data = same.model.layers[1].mlp.up_proj.weight.data.t().contiguous().t()
    assert weights_digest(model) == weights_digest(same)
    with torch.no_grad():
        same.model.layers[1].mlp.up_proj.weight[3, 4] += 1e-3
    assert weights_digest(model) != weights_digest(same)


def test_a_tied_head_counts_once(tiny_model):
    tied = tiny_model(tie_word_embeddings=True)
    untied = tiny_model(tie_word_embeddings=False)
    assert weights_digest(tied) != weights_digest(untied)
    assert sum(p.numel() for p in tied.parameters()) < sum(p.numel() for p in untied.parameters())


@pytest.mark.parametrize("dtype", ("bfloat16", torch.bfloat16))
def test_dtype_may_be_asked_for(tiny_model_dir, dtype):
    engine = load_engine(tiny_model_dir, dtype=dtype)
    assert engine.config.dtype == "bfloat16"
    assert engine.new_payload(1).dtype == torch.bfloat16


def test_without_a_tokenizer_its_digest_is_empty(tiny_model_dir, tmp_path):
    folder = tmp_path / "bare"
    shutil.copytree(tiny_model_dir, folder, ignore=shutil.ignore_patterns("token*", "chat*"))
    assert load_engine(folder).identity.tokenizer == ""


def test_what_is_not_there_is_named(tiny_model_dir, tmp_path):
    with pytest.raises(ModelNotFound, match="nowhere"):
        load_engine(tmp_path / "nowhere")
    shutil.copy(Path(tiny_model_dir) / "config.json", tmp_path)
    with pytest.raises(ModelNotFound, match="safetensors"):
        load_engine(tmp_path)


def test_devices_and_dtypes_that_cannot_serve_are_refused(tiny_model_dir):
    with pytest.raises(ModelRefused, match="mps"):
        load_engine(tiny_model_dir, device="mps")
    with pytest.raises(InvalidInput):
        load_engine(tiny_model_dir, device="the big one")
    with pytest.raises(InvalidInput):
        load_engine(tiny_model_dir, dtype="float33")
    with pytest.raises(ModelRefused, match="float64"):
        load_engine(tiny_model_dir, dtype="float64")
