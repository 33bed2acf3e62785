"""Models for every test: tiny random ones of transformers with a real tokenizer, made in code in a second; SmolLM2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A test says what is right, not how fast: on a busy machine any example may take long.
settings.register_profile("kvlab", deadline=None)
settings.load_profile("kvlab")

VOCABULARY = 320
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRAINING_TEXT = (
    "A workflow of agents shares one long context and each agent reads it again.",
    "The planner names three weaknesses; the reviewers argue them; the editor writes the verdict.",
    "Keys and values of a prefix are the same for every question that follows it.",
    "What was computed once can be moved, mapped, forked, merged and evicted.",
)

TinyModel = Callable[..., Any]


def build_tiny_model(family: str = "llama", dtype: Any = None, seed: int = 0, **overrides: Any) -> Any:
    """A fresh random causal language model of ``family`` (a transformers ``model_type``) in eval mode.

    Weights, biases and norm gains are random and large enough that greedy outputs vary and that forgetting any of
    them shows in the logits. ``overrides`` go to the configuration.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    if family == "mistral":
        settings["sliding_window"] = None
    settings |= overrides
    config = AutoConfig.for_model(family, **settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
            elif parameter.ndim == 1:
                parameter.copy_(1 + 0.2 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype or torch.float32).eval()


def build_tiny_tokenizer() -> Any:
    """A fast byte-level BPE tokenizer with ChatML control tokens and SmolLM2's kind of chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


@pytest.fixture(scope="session")
def tiny_model() -> TinyModel:
    """The factory :func:`build_tiny_model`; each call returns a new model that shares nothing with the others."""
    return build_tiny_model


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory of a saved tiny llama with tokenizer, chat template and generation configuration."""
    folder: Path = tmp_path_factory.mktemp("tiny-llama")
    model = build_tiny_model()
    tokenizer = build_tiny_tokenizer()
    assert len(tokenizer) == VOCABULARY
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.bos_token_id = tokenizer.convert_tokens_to_ids("<|im_start|>")
    model.generation_config.pad_token_id = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the embedded model; a missing one is a skip on a person's machine and a failure in CI."""
    from kvlab.config import CI_VARIABLE, is_set
    from kvlab.engine.embedded import is_ready, model_folder

    if not is_ready():
        if is_set(CI_VARIABLE):
            pytest.fail("the embedded model is not there: `kvlab model fetch` comes before the tests")
        pytest.skip("the embedded model is not there: kvlab model fetch")
    return model_folder()


@pytest.fixture(scope="session")
def kvlab_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Calibrations and runs of the tests lie in a folder of their own; the models' cache stays the user's."""
    import kvlab.runtime.calibration as calibration

    folder = tmp_path_factory.mktemp("kvlab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVLAB_RUNS", str(folder / "runs"))
        patch.setattr(calibration, "cache_dir", lambda: folder / "cache")
        yield folder


@pytest.fixture(scope="session")
def make_lab(tiny_model_dir: str, kvlab_folders: Path) -> Callable[..., Any]:
    """``make_lab(**keywords)``: a lab on the tiny model."""
    from kvlab.progress import Progress
    from kvlab.runtime.lab import Lab

    def make(**keywords: Any) -> Lab:
        return Lab(**{"model": tiny_model_dir, "progress": Progress("nothing"), **keywords})

    return make
