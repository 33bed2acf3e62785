"""Segments of random bytes in every dtype, and how many descriptors a process holds."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kvlab.transport.memory import PayloadAllocator
from kvlab.transport.segment import Header, Segment, checksum

DTYPES = ("float32", "float16", "bfloat16")
LAYERS, HEADS, DIM = 3, 2, 16


def build_segment(recipe: str = "r" * 16, n_tokens: int = 8, dtype: str = "float32", *, mapped: bool = True) -> Segment:
    """A segment of random numbers, in sealed shared memory or (``mapped=False``) in an ordinary tensor."""
    kind = getattr(torch, dtype)
    allocate = PayloadAllocator(LAYERS, HEADS, DIM, kind, torch.device("cpu"))
    payload = allocate(n_tokens) if mapped else torch.empty(LAYERS, 2, HEADS, n_tokens, DIM, dtype=kind)
    payload.copy_(torch.randn(payload.shape, generator=torch.Generator().manual_seed(n_tokens)).to(kind))
    payload, block = allocate.seal(payload)
    header = Header(
        recipe, tuple(payload.shape), dtype, b"\1\0\0\0" * n_tokens, n_tokens,
        checksum=checksum(payload), timing={"worker": "w", "started_ns": 1},
    )  # fmt: skip
    return Segment(header, payload, block=block)


@pytest.fixture
def make_segment() -> Callable[..., Segment]:
    return build_segment


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def same_descriptors_after() -> Iterator[Any]:
    """Fails the test that leaves a descriptor open."""
    before = descriptors()
    yield
    deadline = time.monotonic() + 3
    while descriptors() > before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    assert descriptors() == before
