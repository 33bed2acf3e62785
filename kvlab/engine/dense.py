"""The cold dense run: unmodified transformers, SDPA, DynamicCache. The baseline of benchmarks and oracle of audits."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel


class DenseModel:
    """A model as transformers runs it by default, with a cache it grows itself.

    Parameters
    ----------
    model
        A model of its own: never the one an engine has taken over.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model.eval()

    @classmethod
    def load(cls, path: str | Path, dtype: torch.dtype = torch.float32) -> DenseModel:
        """The model in directory ``path``, on the CPU."""
        return cls(AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True))

    def in_fp32(self) -> DenseModel:
        """The same weights, computed in fp32. Converts this model's own tensors."""
        return DenseModel(self._model.float())

    @property
    def description(self) -> str:
        """What computes: transformers' version and attention implementation."""
        attention = self._model.config._attn_implementation  # noqa: SLF001  it has no public reader
        return f"transformers {transformers.__version__}, {attention}, DynamicCache"

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], keep: Sequence[int] | None = None) -> tuple[torch.Tensor, DynamicCache]:
        """Logits ``[len(keep), vocabulary]`` fp32 (of the last token by default) and the cache that was grown."""
        rows = torch.tensor([len(ids) - 1] if keep is None else list(keep))
        cache = DynamicCache(config=self._model.config)
        output = self._model(input_ids=torch.tensor([list(ids)]), cache=cache, use_cache=True, logits_to_keep=rows)
        return output.logits[0].float(), cache

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Sequence[int]], cache: DynamicCache, n_new: int) -> list[list[int]]:
        """Greedy tokens after each prompt on ``cache`` (one row a prompt), which is grown.

        Prompts of unequal length are padded on the left and masked, as transformers' own ``generate`` does; equal ones
        need no mask.
        """
        n_past, longest = cache.get_seq_length(), max(len(prompt) for prompt in prompts)
        pads = torch.tensor([[longest - len(prompt)] for prompt in prompts])
        fed = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        positions = (n_past + torch.arange(longest) - pads).clamp(min=0)
        mask = None
        if pads.any():
            seen = torch.arange(longest) >= pads
            mask = torch.cat([torch.ones(len(prompts), n_past, dtype=torch.long), seen.long()], 1)
        generated = []
        for _ in range(n_new):
            output = self._model(
                input_ids=fed,
                position_ids=positions,
                attention_mask=mask,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            fed = output.logits[:, -1].argmax(-1, keepdim=True)
            positions = positions[:, -1:] + 1
            mask = None if mask is None else torch.cat([mask, mask.new_ones(len(prompts), 1)], 1)
            generated.append(fed)
        return torch.cat(generated, 1).tolist()

    def cache_of(self, payload: torch.Tensor) -> DynamicCache:
        """A cache that holds the K/V of ``payload [layers, 2, kv_heads, tokens, head_dim]``."""
        cache = DynamicCache(config=self._model.config)
        for i, layer in enumerate(payload):
            cache.update(layer[0][None].contiguous(), layer[1][None].contiguous(), i)
        return cache


def shallow_copy(cache: DynamicCache) -> DynamicCache:
    """A cache with the same tensors that may be grown without changing ``cache``: growing makes new tensors."""
    other = copy.copy(cache)
    other.layers = [copy.copy(layer) for layer in cache.layers]
    return other
