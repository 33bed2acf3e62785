"""Keys of segments and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.runtime.keys import recipe_in, segment_key


@given(st.text("0123456789abcdef-_", min_size=1), st.integers(0, 10**6))
def test_a_recipe_is_found_in_each_of_its_keys(recipe: str, generation: int) -> None:
    assert recipe_in(segment_key(recipe, generation, "ab12")) == recipe
    assert segment_key(recipe, generation, "ab12") != segment_key(recipe, generation + 1, "ab12")
    assert segment_key(recipe, generation, "ab12") != segment_key(recipe, generation, "cd34")


@pytest.mark.parametrize(
    "key",
    [
        "meta-kv-abc.g0",
        "bundle-kv-abc.g0",
        "kv-abc",
        "kv-abc.g0",
        "kv-abc.g.ab",
        "kv-abc.gx.ab",
        "touch-1",
        ("kv-abc.g0", 0),
        3,
    ],
)
def test_other_keys_have_none(key: object) -> None:
    assert recipe_in(key) is None
