"""Drawing tokens: greedy, or by noise that is a function of (seed, branch, position) alone.

With temperature, a token is ``argmax(logits / temperature + gumbel)``, which draws from the softmax exactly (the
Gumbel-max trick). The noise comes from the counter-based generator Philox, keyed by a digest of seed, branch and
position, so batching, order, retry and recompute give the same token.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from kvlab.errors import InvalidInput
from kvlab.state.identity import Sampling


def check_sampling(sampling: Sampling) -> None:
    """Raise :class:`InvalidInput` unless temperature is finite and ≥ 0 and ``max_new_tokens`` ≥ 0."""
    if sampling.max_new_tokens < 0:
        raise InvalidInput(f"max_new_tokens is {sampling.max_new_tokens}", hint="0 only prefills; more generates")
    if not 0.0 <= sampling.temperature < float("inf"):
        raise InvalidInput(f"temperature is {sampling.temperature}", hint="0 is greedy; 0.7 is a usual value")


def gumbel_noise(seed: int, branch: str, position: int, n: int) -> np.ndarray:
    """``[n]`` fp64 standard Gumbel noise for the token at ``position``; raw Philox output is stable over versions."""
    key = hashlib.sha256(f"{seed}\0{branch}\0{position}".encode()).digest()[:16]
    raw = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(n)
    uniform = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


def draw(logits: torch.Tensor, sampling: Sampling, position: int) -> int:
    """The token id for ``position``, from ``logits [vocabulary]`` fp32. Changes nothing."""
    if sampling.temperature == 0.0:
        return int(logits.argmax())
    scaled = logits.double().cpu().numpy() / sampling.temperature
    return int(np.argmax(scaled + gumbel_noise(sampling.seed, sampling.branch, position, scaled.shape[0])))
