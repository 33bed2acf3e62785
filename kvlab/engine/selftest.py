"""Load-time proof on a tiny prompt that the engine and unmodified transformers compute the same.

A configuration alone misses cases; running the model once does not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from kvlab.engine.parts import PartKernel, plain_part
from kvlab.engine.protocol import Branch
from kvlab.errors import KVLabError, ModelRefused
from kvlab.state.identity import KVConfig, Sampling
from kvlab.state.tokens import pack_ids

if TYPE_CHECKING:
    from kvlab.engine.torch_engine import TorchEngine

N_TOKENS = 24
FIRST_CUT, SECOND_CUT, SHORT_END = 9, 16, 20
TOLERANCE = {"float32": 1e-4, "float16": 0.03, "bfloat16": 0.1}
"""Largest allowed difference of logits, relative to the largest logit (or to 1). A wrong mask or position is off by
order 1; two right ways of computing in 16 bits differ by rounding in every layer."""


def prompt_for(n_vocabulary: int) -> list[int]:
    """A fixed prompt that visits the whole vocabulary."""
    return [(7919 * i + 13) % n_vocabulary for i in range(N_TOKENS)]


@torch.inference_mode()
def reference_logits(model: PreTrainedModel, n_vocabulary: int) -> torch.Tensor:
    """``[tokens, vocabulary]`` fp32 logits of the fixed prompt by transformers' own attention, without a cache."""
    ids = torch.tensor([prompt_for(n_vocabulary)], device=model.device)
    return model(input_ids=ids, use_cache=False).logits[0].float()


def require_agreement(engine: TorchEngine, reference: torch.Tensor) -> None:
    """Run the prompt cut into segments, chunks, siblings and single layers; compare with ``reference``.

    Raises
    ------
    ModelRefused
        With the way of computing that differs and by how much.
    """
    ids = prompt_for(engine.n_vocabulary)
    try:
        first = engine.prefill(pack_ids(ids[:FIRST_CUT]), [], engine.new_payload, chunk=4)
        second = engine.prefill(pack_ids(ids[FIRST_CUT:SECOND_CUT]), [first.payload], engine.new_payload)
        past = [first.payload, second.payload]
        no_tokens = Sampling(max_new_tokens=0)
        long, short = engine.decode_batch(
            [Branch(pack_ids(ids[SECOND_CUT:]), no_tokens), Branch(pack_ids(ids[SECOND_CUT:SHORT_END]), no_tokens)],
            past,
            engine.new_payload,
        )
        one = engine.prefill(pack_ids(ids[SECOND_CUT : SECOND_CUT + 1]), past, engine.new_payload)
    except KVLabError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelRefused(
            f"{engine.identity.name} fails in the engine's self-test: {type(error).__name__}: {error}",
            hint="use a model with plain causal attention, such as Llama, Qwen2, Qwen3 or Mistral",
        ) from error
    for way, logits, row in (
        ("chunked prefill", first.last_logits, FIRST_CUT - 1),
        ("prefill on a segment", second.last_logits, SECOND_CUT - 1),
        ("siblings on two segments", long.last_logits, N_TOKENS - 1),
        ("a short sibling", short.last_logits, SHORT_END - 1),
        ("one token on two segments", one.last_logits, SECOND_CUT),
    ):
        off, allowed = _difference(logits, reference[row], engine.config.dtype)
        if not off <= allowed:
            raise ModelRefused(
                f"{engine.identity.name} gives other logits in the engine than in transformers: {way} is off by "
                f"{off:.2e} (allowed {allowed:.2e})",
                hint="its attention does something the engine does not know; use another model",
                way=way,
                off=off,
            )


def partial_objection(engine: TorchEngine, reference: torch.Tensor) -> str:
    """Why this model cannot run single layers, or "" if doing so for the whole prompt gives ``reference``."""
    ids = torch.tensor(prompt_for(engine.n_vocabulary), device=engine.device)
    payload = engine.new_payload(N_TOKENS)
    try:
        logits = engine.run_layers(
            ids, torch.arange(N_TOKENS, device=engine.device), range(engine.config.layers), payload
        )
    except (KVLabError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    off, allowed = _difference(logits, reference, engine.config.dtype)
    return "" if off <= allowed else f"layers run alone give logits off by {off:.2e} (allowed {allowed:.2e})"


@torch.inference_mode()
def require_true_lse(kernel: PartKernel, config: KVConfig, device: torch.device) -> None:
    """Compare the kernel's out and lse with plain math, square and rectangular; a wrong lse merges wrongly in silence.

    Raises
    ------
    ModelRefused
        Naming the shape that differs. Unverified on GPU.
    """
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, config.dtype)
    for n_queries, n_columns, causal in ((7, 33, False), (40, 40, True), (1, 65, False)):
        query, key, value = (
            torch.randn(1, config.kv_heads, n, config.head_dim, generator=generator).to(device, dtype)
            for n in (n_queries, n_columns, n_columns)
        )
        out, lse = kernel(query, key, value, config.head_dim**-0.5, causal=causal)
        true_out, true_lse = plain_part(query, key, value, config.head_dim**-0.5, causal=causal)
        limit = 1e-4 if config.dtype == "float32" else 2e-2
        same_shape = lse.shape == true_lse.shape
        if not same_shape or (lse - true_lse).abs().max() > limit or (out.float() - true_out).abs().max() > limit:
            raise ModelRefused(
                f"the attention kernel for {device.type} {config.dtype} gives another log-sum-exp than plain math "
                f"({n_queries} × {n_columns}, causal {causal}, lse {tuple(lse.shape)})",
                hint="use another torch version, or load the model in float32",
            )


def _difference(logits: torch.Tensor, reference: torch.Tensor, dtype: str) -> tuple[float, float]:
    size = max(1.0, float(reference.abs().max()))
    off = float((logits - reference).abs().max())
    return (off if math.isfinite(off) else math.inf), TOLERANCE[dtype] * size
