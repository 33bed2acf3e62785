"""A span of layers on chosen rows of a sequence, for methods that correct K/V made under another prefix.

Rows carry their true positions; their K/V are scattered into the given payload, and each row attends to every column
at a position ≤ its own, whether it was computed now or lay there before.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from kvlab.engine.cache import LAYER
from kvlab.engine.parts import plain_part
from kvlab.errors import InvalidInput, ModelRefused
from kvlab.state.identity import KVConfig

ROWS_AT_ONCE = 256
"""Queries of one masked product; a block reads only the columns up to its last position."""


class ScatterLayer(CacheLayerMixin):
    """One layer of the payload, written at the rows' positions."""

    is_sliding = False
    is_compileable = False
    is_croppable = False
    supports_early_init = False

    def __init__(self, payload: torch.Tensor, positions: torch.Tensor) -> None:
        super().__init__()
        self.is_initialized = True
        self.keys_at, self.values_at = payload[0], payload[1]
        self.positions = positions

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: memory is there from the start."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002  transformers' signature
        **kwargs: Any,  # noqa: ARG002  as args
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scatter ``[1, kv_heads, n, head_dim]`` to the rows' positions; return them with this layer on the key."""
        self.keys_at[:, self.positions] = key_states[0]
        self.values_at[:, self.positions] = value_states[0]
        setattr(key_states, LAYER, self)
        return key_states, value_states

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,  # noqa: ARG002  already scattered
        value: torch.Tensor,  # noqa: ARG002  already scattered
        scale: float,
    ) -> torch.Tensor:
        """Attention of the rows ``[1, heads, n, head_dim]`` over the columns at positions ≤ their own."""
        _, heads, n, dim = query.shape
        kv_heads = self.keys_at.shape[0]
        group = heads // kv_heads
        outs = []
        for start in range(0, n, ROWS_AT_ONCE):
            at = self.positions[start : start + ROWS_AT_ONCE]
            width = int(at[-1]) + 1
            folded = query[:, :, start : start + len(at)].reshape(1, kv_heads, group * len(at), dim)
            seen = torch.arange(width, device=at.device) <= at[:, None]
            allowed = seen.repeat(group, 1)[None, None]
            out, _ = plain_part(
                folded, self.keys_at[None, :, :width], self.values_at[None, :, :width], scale, allowed=allowed
            )
            outs.append(out.reshape(1, heads, len(at), dim))
        return torch.cat(outs, 2).to(query.dtype)

    def get_seq_length(self) -> int:
        """Columns in front of the first row."""
        return int(self.positions[0])

    def get_max_length(self) -> int:
        """−1: no maximum, in transformers' convention."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002  transformers' signature
        """K/V length and offset a mask would have; kvlab's attention takes none."""
        return self.keys_at.shape[1], 0


def missing_parts(model: PreTrainedModel) -> list[str]:
    """Attributes that running single layers needs and this family does not have."""
    backbone = model.base_model
    return [name for name in ("layers", "rotary_emb", "norm") if not hasattr(backbone, name)]


def run_layers(
    model: PreTrainedModel,
    config: KVConfig,
    hidden_or_ids: torch.Tensor,
    positions: torch.Tensor,
    layers: range,
    payload: torch.Tensor,
) -> torch.Tensor:
    """See :meth:`kvlab.engine.protocol.Engine.partial_forward`. Changes ``payload`` at ``positions`` in ``layers``."""
    lacking = missing_parts(model)
    if lacking:
        raise ModelRefused(
            f"{type(model).__name__} cannot run single layers: its backbone has no {', '.join(lacking)}",
            hint="correction methods need a Llama-like backbone; exact reuse works without them",
            features=lacking,
        )
    _check(config, hidden_or_ids, positions, layers, payload)
    backbone: Any = model.base_model
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    hidden = embedding(hidden_or_ids.long()[None]) if layers.start == 0 else hidden_or_ids[None]
    cache = Cache(layers=[ScatterLayer(payload[i], positions) for i in range(config.layers)])
    rotary = backbone.rotary_emb(hidden, position_ids=positions[None])
    for i in layers:
        hidden = backbone.layers[i](
            hidden,
            attention_mask=None,
            position_embeddings=rotary,
            position_ids=positions[None],
            cache=cache,
            use_cache=True,
        )
    if layers.stop < config.layers:
        return hidden[0]
    return head(backbone.norm(hidden))[0].float()


def _check(
    config: KVConfig, hidden_or_ids: torch.Tensor, positions: torch.Tensor, layers: range, payload: torch.Tensor
) -> None:
    if layers.step != 1 or not 0 <= layers.start < layers.stop <= config.layers:
        raise InvalidInput(f"layers are {layers}", hint=f"a non-empty range within 0..{config.layers}, step 1")
    if positions.ndim != 1 or len(positions) == 0 or len(positions) != len(hidden_or_ids):
        raise InvalidInput(
            f"{tuple(hidden_or_ids.shape)} rows and {tuple(positions.shape)} positions",
            hint="one position for each row, at least one row",
        )
    if int(positions[0]) < 0 or int(positions[-1]) >= payload.shape[3] or bool((positions.diff() <= 0).any()):
        raise InvalidInput(
            f"positions run from {int(positions[0])} to {int(positions[-1])}",
            hint=f"ascending positions within the cache's {payload.shape[3]} tokens",
        )
