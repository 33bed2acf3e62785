"""Models the engine does not reproduce are refused by name; what the configuration does not say, the self-test finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kvlab.engine.interface import attention_function, mask_function
from kvlab.engine.loading import load_engine
from kvlab.engine.parts import plain_part
from kvlab.engine.selftest import prompt_for, reference_logits, require_agreement, require_true_lse
from kvlab.engine.support import kv_config, objections
from kvlab.engine.torch_engine import TorchEngine
from kvlab.errors import ModelRefused

REFUSED = {
    "gemma2": ({}, "soft-capping (attn_logit_softcapping)"),
    "gemma2-layers": ({}, "layer kind sliding_attention"),
    "mistral": ({"sliding_window": 16}, "layer kind sliding_attention"),
    "qwen2": (
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        "layer kind sliding_attention",
    ),
    "gpt_oss": ({"num_local_experts": 2}, "layer kind sliding_attention"),
    "llama": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}, "rope type dynamic"),
    "bloom": ({}, "attention outside transformers' interface (BloomForCausalLM)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_is_refused_by_the_name_of_what_it_has(case, tiny_model):
    overrides, named = REFUSED[case]
    model = tiny_model(case.split("-")[0], **overrides)
    with pytest.raises(ModelRefused) as caught:
        TorchEngine.from_model(model, name="candidate")
    assert named in caught.value.data["features"]
    assert named in str(caught.value)
    assert model.config._attn_implementation != "kvlab"


@pytest.mark.parametrize("family", ("llama", "qwen2", "qwen3", "mistral"))
def test_nothing_stands_against_the_promised_families(family, tiny_model):
    model = tiny_model(family)
    assert objections(model.config, type(model)) == []


@pytest.mark.parametrize("family", ("phi", "gemma", "olmo2", "granite", "cohere"))
def test_other_families_work_when_the_self_test_agrees(family, engine_of, dense_of, tokens):
    from kvlab.engine.protocol import Branch
    from kvlab.state.identity import Sampling
    from kvlab.state.tokens import pack_ids, unpack_ids

    engine, dense, ids = engine_of(family), dense_of(family), tokens(40)
    past = [engine.prefill(pack_ids(ids[:25]), [], engine.new_payload).payload]
    made = engine.resume(Branch(pack_ids(ids[25:]), Sampling(8)), past, engine.new_payload)
    torch.testing.assert_close(made.last_logits, dense.logits(ids)[-1], atol=1e-4, rtol=1e-5)
    dense.require_greedy(ids, unpack_ids(made.generated))


def attention_inputs(engine):
    from kvlab.engine.cache import SegmentedCache, Span, Tails

    cache = SegmentedCache([], Tails(engine.new_payload(2)[None]), plain_part)
    cache.begin([Span(0, 0, 2)])
    key, value = cache.update(torch.randn(1, 2, 2, 16), torch.randn(1, 2, 2, 16), 0)
    return torch.randn(1, 4, 2, 16), key, value


@pytest.mark.parametrize(
    ("name", "given"),
    (
        ("s_aux", torch.zeros(4)),
        ("position_bias", torch.zeros(1)),
        ("softcap", 50.0),
        ("sliding_window", 8),
        ("is_causal", False),
        ("made_up_tomorrow", 1),
    ),
)
def test_a_keyword_that_changes_attention_is_refused_by_name(name, given, engine_of):
    query, key, value = attention_inputs(engine_of())
    module = torch.nn.Identity()
    attention_function(module, query, key, value, None, sliding_window=None, position_ids=torch.arange(2))
    with pytest.raises(ModelRefused, match=name):
        attention_function(module, query, key, value, None, **{name: given})


def test_masks_dropout_and_foreign_keys_are_refused(engine_of):
    query, key, value = attention_inputs(engine_of())
    module = torch.nn.Identity()
    with pytest.raises(ModelRefused, match="attention_mask"):
        attention_function(module, query, key, value, torch.zeros(1, 1, 2, 2))
    with pytest.raises(ModelRefused, match="dropout"):
        attention_function(module, query, key, value, None, dropout=0.1)
    with pytest.raises(ModelRefused, match="not the cache's"):
        attention_function(module, query, key.clone(), value, None)
    with pytest.raises(ModelRefused, match="padding mask"):
        mask_function(attention_mask=torch.ones(1, 2, dtype=torch.bool))


def test_the_self_test_finds_what_the_configuration_does_not_say(tiny_model):
    model = tiny_model()
    engine = TorchEngine.from_model(model, name="lying")
    model.set_attn_implementation("sdpa")
    reference = reference_logits(model, engine.n_vocabulary)
    model.set_attn_implementation("kvlab")
    require_agreement(engine, reference)
    honest = engine._kernel
    engine._kernel = lambda q, k, v, scale, *, causal=False: honest(q, k, v, 1.05 * scale, causal=causal)
    with pytest.raises(ModelRefused, match="other logits"):
        require_agreement(engine, reference)


@pytest.mark.parametrize(
    "wrong", (lambda out, lse: (out, lse + 1), lambda out, lse: (out, lse[..., None]), lambda out, lse: (2 * out, lse))
)
def test_a_kernel_with_another_log_sum_exp_is_refused(wrong, engine_of):
    config, device = engine_of().config, torch.device("cpu")
    require_true_lse(plain_part, config, device)
    require_true_lse(engine_of()._kernel, config, device)
    with pytest.raises(ModelRefused, match="log-sum-exp"):
        require_true_lse(lambda *args, **settings: wrong(*plain_part(*args, **settings)), config, device)


def test_the_fixed_prompt_is_within_any_vocabulary():
    for n_vocabulary in (2, 320, 128_256):
        assert all(0 <= i < n_vocabulary for i in prompt_for(n_vocabulary))


def test_a_dtype_without_payload_is_refused(tiny_model):
    with pytest.raises(ModelRefused, match="float64"):
        kv_config(tiny_model().config, torch.float64)


@pytest.mark.parametrize(
    ("change", "named"),
    (
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rope type dynamic"),
        ({"model_type": "t5"}, "t5"),
        ({"model_type": "made-up"}, "made-up"),
    ),
)
def test_a_configuration_is_refused_before_weights_are_read(change, named, tiny_model_dir, tmp_path):
    config = json.loads((Path(tiny_model_dir) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelRefused, match=named):
        load_engine(tmp_path)
