from __future__ import annotations

import hashlib
import struct
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.state.identity import (
    DTYPE_BYTES,
    KVConfig,
    ModelIdentity,
    Sampling,
    canonical_json,
    identity_of,
    recipe_of,
    root_digest,
    sha256_hex,
)
from kvlab.state.tokens import pack_ids

OTHER = {int: lambda value: value + 1, str: lambda value: value + "x", float: lambda value: value + 0.5}


def changed(record, name):
    value = getattr(record, name)
    return replace(record, **{name: OTHER[type(value)](value)})


@pytest.mark.parametrize("name", [field.name for field in fields(ModelIdentity)])
def test_every_field_of_the_model_but_its_name_is_in_the_root(model, config, name):
    same = root_digest(model, config, "") == root_digest(changed(model, name), config, "")
    assert same == (name == "name")


@pytest.mark.parametrize("name", [field.name for field in fields(KVConfig)])
def test_every_field_of_the_configuration_is_in_the_root(model, config, name):
    assert root_digest(model, config, "") != root_digest(model, changed(config, name), "")


def test_namespaces_are_apart(model, config):
    assert root_digest(model, config, "a") != root_digest(model, config, "b")


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_no_two_lists_of_parts_collide_by_where_they_are_cut(a, b):
    assert (sha256_hex(*a) == sha256_hex(*b)) == (a == b)


def test_text_and_its_bytes_are_one_part():
    assert sha256_hex("é") == sha256_hex("é".encode())


def by_hand(*parts):
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()


def test_digests_are_what_they_are_documented_to_be(model, config):
    """Keys and saved states are named by them: another spelling would lose them."""
    fields_of_model = b'{"adapter":"","tokenizer":"tokenizer","weights":"weights"}'
    fields_of_config = (
        b'{"dtype":"float32","head_dim":16,"kv_heads":2,"layers":3,"layout":"kvlab.layers-kv-heads-tokens-dim.v1",'
        b'"max_positions":64,"rope":"{}"}'
    )
    root = root_digest(model, config, "mine")
    assert root == by_hand(b"root", fields_of_model, fields_of_config, b"mine")
    ids = struct.pack("<2i", 1, 2)
    assert identity_of(root, ids) == by_hand(b"identity", root.encode(), ids)
    drawn = b'{"branch":"a/0","max_new_tokens":4,"seed":7,"temperature":0.5}'
    recipe = recipe_of(root, "p", ids, Sampling(4, 0.5, 7, "a/0"))
    assert recipe == by_hand(b"recipe", root.encode(), b"p", b"turn", ids, drawn)


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_identity_is_a_function_of_the_path_alone(a, b):
    same = identity_of("root", pack_ids(a)) == identity_of("root", pack_ids(b))
    assert same == (a == b)
    assert identity_of("root", pack_ids(a)) != identity_of("another", pack_ids(a))


def test_identity_does_not_depend_on_how_the_path_is_cut(make_state):
    assert (
        make_state([1, 2, 3], [4]).identity == make_state([1], [2, 3, 4]).identity == make_state([1, 2, 3, 4]).identity
    )


@pytest.mark.parametrize("name", [field.name for field in fields(Sampling)])
def test_every_setting_of_sampling_is_in_the_recipe(name):
    sampling = Sampling(8, 0.5, 1, "a/0")
    assert recipe_of("r", None, b"", sampling) != recipe_of("r", None, b"", changed(sampling, name))


def test_every_argument_is_in_the_recipe():
    base = recipe_of("r", "p", pack_ids([1]), None, "turn")
    others = [
        recipe_of("s", "p", pack_ids([1]), None, "turn"),
        recipe_of("r", "q", pack_ids([1]), None, "turn"),
        recipe_of("r", None, pack_ids([1]), None, "turn"),
        recipe_of("r", "p", pack_ids([2]), None, "turn"),
        recipe_of("r", "p", pack_ids([1]), Sampling(0), "turn"),
        recipe_of("r", "p", pack_ids([1]), None, "cut"),
    ]
    assert len({base, *others}) == 7


def test_a_number_has_one_spelling_in_the_recipe():
    assert recipe_of("r", None, b"", Sampling(1, 0)) == recipe_of("r", None, b"", Sampling(1, 0.0))
    assert recipe_of("r", None, b"", Sampling(1, -0.0)) == recipe_of("r", None, b"", Sampling(1, 0.0))


def test_the_three_digests_of_the_same_bytes_differ():
    ids = pack_ids([1, 2])
    assert len({identity_of("r", ids), recipe_of("r", None, ids), sha256_hex("r", ids)}) == 3


def test_canonical_json_does_not_depend_on_order():
    assert canonical_json({"b": 1, "a": "é"}) == canonical_json({"a": "é", "b": 1}) == '{"a":"\\u00e9","b":1}'


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_bytes_of_a_token_are_those_of_k_and_v_of_all_layers(config, dtype):
    torch = pytest.importorskip("torch")
    shape = (config.layers, 2, config.kv_heads, 1, config.head_dim)
    payload = torch.empty(shape, dtype=getattr(torch, dtype))
    assert replace(config, dtype=dtype).bytes_per_token == payload.numel() * payload.element_size()
