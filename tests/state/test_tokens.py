from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.state.tokens import common_prefix, n_ids, pack_ids, unpack_ids

IDS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40)
FEW = st.lists(st.integers(0, 1), max_size=12)


@given(IDS)
def test_packing_is_little_endian_int32_and_has_an_inverse(ids):
    packed = pack_ids(ids)
    assert packed == struct.pack(f"<{len(ids)}i", *ids)
    assert unpack_ids(packed) == tuple(ids)
    assert n_ids(packed) == len(ids)


@given(IDS)
def test_any_iterable_is_packed_alike(ids):
    assert pack_ids(iter(ids)) == pack_ids(tuple(ids)) == pack_ids(ids)


@given(st.binary(max_size=40))
def test_bytes_are_an_iterable_of_ids_too(raw):
    assert pack_ids(raw) == pack_ids(list(raw))


@pytest.mark.parametrize("id_", [2**31, -(2**31) - 1])
def test_an_id_beyond_int32_raises(id_):
    with pytest.raises(OverflowError):
        pack_ids([id_])


@pytest.mark.parametrize("ids", [[1.5], ["1"], [None]])
def test_what_is_no_int_raises(ids):
    with pytest.raises(TypeError):
        pack_ids(ids)


def test_half_an_id_raises():
    with pytest.raises(ValueError, match="multiple"):
        unpack_ids(b"123")


def naive(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(FEW, FEW)
def test_the_common_prefix_is_what_counting_gives(a, b):
    assert common_prefix(pack_ids(a), pack_ids(b)) == naive(a, b)


@given(IDS, IDS, IDS)
def test_the_common_prefix_of_continuations_holds_what_they_continue(shared, a, b):
    assert common_prefix(pack_ids(shared + a), pack_ids(shared + b)) == len(shared) + naive(a, b)


def test_ids_that_differ_in_one_byte_only_are_different():
    for byte in range(4):
        other = bytearray(pack_ids([7, 7, 7]))
        other[4 + byte] ^= 1
        assert common_prefix(pack_ids([7, 7, 7]), bytes(other)) == 1
