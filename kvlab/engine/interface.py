"""kvlab's attention as transformers knows it: the attention function and the mask function ``kvlab``."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from kvlab.engine.cache import LAYER
from kvlab.errors import ModelRefused

NAME = "kvlab"
"""Name under which the attention and mask functions are registered in transformers."""

HARMLESS = frozenset({"position_ids", "position_embeddings", "use_cache", "cache", "output_attentions", "is_causal"})
"""Keywords that models pass along and that do not change what attention computes. Any other one is refused if set."""


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' attention signature. Returns ``[1, n, heads, head_dim]``.

    Raises
    ------
    ModelRefused
        When the model asks for more than plain causal attention, naming it.
    """
    asked = [name for name, given in kwargs.items() if given is not None and name not in HARMLESS]
    if kwargs.get("is_causal") is False:
        asked.append("is_causal=False")
    if attention_mask is not None:
        asked.append("attention_mask")
    if dropout:
        asked.append("dropout")
    layer = getattr(key, LAYER, None)
    if layer is None:
        asked.append("keys that are not the cache's")
    if asked or layer is None:
        raise ModelRefused(
            f"{type(module).__name__} calls attention with {', '.join(asked)}, which the engine does not reproduce",
            hint="use a model with plain causal attention, such as Llama, Qwen2, Qwen3 or Mistral",
            features=asked,
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return layer.attend(query, key, value, scale).transpose(1, 2).contiguous(), None


def mask_function(*args: Any, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> None:  # noqa: ARG001
    """Transformers' mask signature: no mask is needed, and a padding mask is refused."""
    if attention_mask is not None:
        raise ModelRefused(
            "a padding mask reached the engine's attention", hint="branches are packed in one row, not padded"
        )


AttentionInterface.register(NAME, attention_function)
AttentionMaskInterface.register(NAME, mask_function)
