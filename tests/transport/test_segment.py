"""The segment: whole, checked, never inside anything, and counted by its true size."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from dask.sizeof import sizeof

import kvlab.transport.serializers as wire
from kvlab.errors import ChecksumMismatch, TransferFailed
from kvlab.transport.segment import Bundle, Segment, as_bytes, checksum

DTYPES = ("float32", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_its_size_is_its_payloads(make_segment: Any, dtype: str) -> None:
    segment = make_segment(dtype=dtype)
    payload = segment.tensor()
    assert segment.nbytes == payload.numel() * payload.element_size() == len(as_bytes(payload))
    assert sizeof(segment) == segment.nbytes + wire._OBJECT_BYTES
    pair = Bundle([segment, make_segment(n_tokens=3, dtype=dtype)])
    assert pair.nbytes == segment.nbytes * 11 // 8
    assert sizeof(pair) == pair.nbytes + wire._OBJECT_BYTES


@pytest.mark.parametrize(
    "place", [lambda s: s, lambda s: [s], lambda s: {"kv": s}, lambda s: (s, 1), lambda s: Bundle([s])]
)
def test_pickling_names_the_mistake(make_segment: Any, place: Any) -> None:
    with pytest.raises(TypeError, match=r"whole result of a task|does not travel"):
        pickle.dumps(place(make_segment()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_are_the_tensors_own_memory(dtype: str) -> None:
    payload = torch.arange(24).to(getattr(torch, dtype)).view(1, 2, 1, 3, 4)
    seen = as_bytes(payload)
    assert seen.nbytes == payload.nbytes
    payload.zero_()
    assert not any(seen)


def test_checksums_tell_any_bit_apart_and_nothing_else() -> None:
    payload = torch.randn(2, 2, 1, 5, 4)
    same = payload.clone()
    assert checksum(payload) == checksum(same)
    same.view(torch.uint8)[0, 0, 0, 0, 0] ^= 1
    assert checksum(payload) != checksum(same)
    assert checksum(payload[:, :, :, :2]) == checksum(payload[:, :, :, :2].clone())


@pytest.mark.parametrize("arrived", ["computed", "map", "transfer", "restored"])
def test_what_crossed_a_wire_is_checked_once_and_nothing_else(make_segment: Any, arrived: str) -> None:
    made = make_segment(mapped=False)
    copy = made.tensor().clone()
    flipped = Segment(replace(made.header, checksum="0" * 16), copy, arrived=arrived)
    if arrived == "transfer":
        with pytest.raises(ChecksumMismatch, match="r" * 12) as caught:
            flipped.tensor()
        assert caught.value.hint
        assert caught.value.data == {"recipe": "r" * 16}
    else:
        assert flipped.tensor() is copy
    good = Segment(made.header, copy, arrived=arrived)
    assert good.tensor() is copy
    copy.zero_()
    assert good.tensor() is copy


def test_one_that_did_not_arrive_says_why(make_segment: Any) -> None:
    lost = Segment(make_segment().header, None, failure="the cable was cut")
    assert lost.nbytes == 0
    with pytest.raises(TransferFailed, match="the cable was cut") as caught:
        lost.tensor()
    assert caught.value.hint
    assert caught.value.data == {"recipe": "r" * 16}
    assert "8 tokens" in repr(lost)
