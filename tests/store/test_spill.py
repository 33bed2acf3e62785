"""A spilled segment's file: who wants it makes it, and to remove it is to want it no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvlab.errors import ChecksumMismatch
from kvlab.store.spill import restore, spill


def allocate(n_tokens: int) -> torch.Tensor:
    return torch.empty(2, 2, 3, n_tokens, 4)


def test_a_payload_comes_back_bit_for_bit_over_what_was_left_of_another_try(tmp_path: Path) -> None:
    payload, path = torch.randn(2, 2, 3, 7, 4), tmp_path / "one.safetensors"
    path.write_bytes(b"\x7f" * 100_000)
    told = spill(str(path), payload)
    assert path.stat().st_size == told.nbytes
    assert torch.equal(restore("one", told, allocate), payload)
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(ChecksumMismatch, match="one.safetensors"):
        restore("one", told, allocate)


def test_a_file_that_is_wanted_no_more_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spill(str(tmp_path / "one.safetensors"), torch.randn(2, 2, 3, 7, 4))
    assert list(tmp_path.iterdir()) == []
