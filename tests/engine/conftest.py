"""The oracle: unmodified transformers, SDPA, DynamicCache, on the same token ids, by a model object of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from kvlab.engine.torch_engine import TorchEngine

TIE = 2e-4


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Dense:
    """Cold dense runs of one model."""

    model: Any

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """``[tokens, vocabulary]`` fp32."""
        ids = torch.tensor([list(ids)])
        cache = DynamicCache(config=self.model.config)
        return self.model(input_ids=ids, cache=cache, use_cache=True).logits[0].float()

    @torch.inference_mode()
    def payload(self, ids: Sequence[int]) -> torch.Tensor:
        """``[layers, 2, kv_heads, tokens, head_dim]`` as transformers computed it."""
        cache = DynamicCache(config=self.model.config)
        self.model(input_ids=torch.tensor([list(ids)]), cache=cache, use_cache=True)
        return torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])

    def require_greedy(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        """Each generated token is the dense run's best after the tokens before it, or tied with it."""
        logits = self.logits([*prompt, *generated[:-1]])[len(prompt) - 1 :]
        for row, token in zip(logits, generated, strict=True):
            assert row.max() - row[token] < TIE


@pytest.fixture(scope="session")
def dense_of(tiny_model: Callable[..., Any]) -> Callable[..., Dense]:
    """``dense_of(family, **settings)``: the oracle for the tiny model of these settings."""

    @cache
    def make(family: str = "llama", **settings: Any) -> Dense:
        return Dense(tiny_model(family, **settings))

    return make


@pytest.fixture(scope="session")
def engine_of(tiny_model: Callable[..., Any]) -> Callable[..., TorchEngine]:
    """``engine_of(family, **settings)``: an engine on another model object with the same weights."""

    @cache
    def make(family: str = "llama", **settings: Any) -> TorchEngine:
        return TorchEngine.from_model(tiny_model(family, **settings), name=f"tiny-{family}")

    return make


@pytest.fixture(scope="session")
def tokens() -> Callable[..., list[int]]:
    """``tokens(n, seed=0)``: n random ids of the tiny vocabulary."""

    def make(n: int, seed: int = 0) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(3, 320, (n,), generator=generator).tolist()

    return make
