"""Which models the engine reproduces exactly. Everything else is refused by name, before any work."""

from __future__ import annotations

import inspect

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from kvlab.engine.payload import dtype_name
from kvlab.engine.rope import LENGTH_DEPENDENT, rope_json, rope_kinds
from kvlab.errors import ModelRefused
from kvlab.state.identity import DTYPE_BYTES, KVConfig

PROMISED = ("llama", "qwen2", "qwen3", "mistral")
"""Families tested on every change. Others work if nothing below names them and the self-test agrees."""

SOFT_CAPS = ("attn_logit_softcapping",)
CALL_ARGUMENTS = ("cache", "position_ids", "logits_to_keep")


def objections(config: PreTrainedConfig, model_class: type[PreTrainedModel]) -> list[str]:
    """Names of what the engine does not reproduce in this model; empty when nothing stands against it."""
    decoder = config.get_text_config(decoder=True)
    found = []
    if not getattr(model_class, "_supports_attention_backend", False):
        found.append(f"attention outside transformers' interface ({model_class.__name__})")
    kinds, _ = get_layer_types_and_kwargs(decoder)
    found += [f"layer kind {kind}" for kind in sorted(set(kinds)) if kind != "full_attention"]
    found += [f"rope type {kind}" for kind in sorted(rope_kinds(decoder) & LENGTH_DEPENDENT)]
    found += [f"soft-capping ({name})" for name in SOFT_CAPS if getattr(decoder, name, None) is not None]
    if getattr(decoder, "kv_lora_rank", None) is not None:
        found.append("multi-head latent attention (kv_lora_rank)")
    if getattr(config, "is_encoder_decoder", False):
        found.append("an encoder")
    parameters = inspect.signature(model_class.forward).parameters
    found += [f"a forward without {name}" for name in CALL_ARGUMENTS if name not in parameters]
    return found


def require_supported(config: PreTrainedConfig, model_class: type[PreTrainedModel], name: str) -> None:
    """Return if nothing stands against the model. Needs no weights.

    Raises
    ------
    ModelRefused
        Naming every feature the engine does not reproduce.
    """
    found = objections(config, model_class)
    if found:
        raise ModelRefused(
            f"{name} ({config.model_type}) has {', '.join(found)}, which the engine does not reproduce exactly",
            hint=f"use a model with full causal attention in every layer; {', '.join(PROMISED)} are tested",
            features=found,
        )


def kv_config(config: PreTrainedConfig, dtype: torch.dtype) -> KVConfig:
    """Θ of a model computing in ``dtype``.

    Raises
    ------
    ModelRefused
        For a dtype that payloads cannot have.
    """
    decoder = config.get_text_config(decoder=True)
    if dtype_name(dtype) not in DTYPE_BYTES:
        raise ModelRefused(
            f"payloads cannot have dtype {dtype_name(dtype)}", hint=f"load it as one of {', '.join(DTYPE_BYTES)}"
        )
    heads = decoder.num_attention_heads
    return KVConfig(
        layers=decoder.num_hidden_layers,
        kv_heads=getattr(decoder, "num_key_value_heads", None) or heads,
        head_dim=getattr(decoder, "head_dim", None) or decoder.hidden_size // heads,
        dtype=dtype_name(dtype),
        rope=rope_json(decoder),
        max_positions=decoder.max_position_embeddings,
    )
