from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.errors import MergeRefused, StateMismatch
from kvlab.state.merge import merge_prefix, shared_prefix

IDS = st.lists(st.integers(0, 2), max_size=5)
SOME = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@given(paths=st.lists(SOME, min_size=1, max_size=4))
def test_a_merge_is_the_longest_path_exactly_if_all_are_its_prefixes(make_state, paths):
    states = [make_state(path, name=f"s{index}") for index, path in enumerate(paths)]
    longest = max(paths, key=len)
    if all(path == longest[: len(path)] for path in paths):
        merged = merge_prefix(states)
        assert merged in states
        assert merged.path_ids == states[paths.index(longest)].path_ids
    else:
        with pytest.raises(MergeRefused) as raised:
            merge_prefix(states)
        at = raised.value.data["position"]
        assert any(path[:at] == longest[:at] and path[at : at + 1] != longest[at : at + 1] for path in paths)


@given(shared=IDS, ends=st.lists(IDS, min_size=1, max_size=4))
def test_the_shared_prefix_is_what_counting_gives(make_state, shared, ends):
    paths = [shared + end for end in ends]
    count = next((i for i in range(min(map(len, paths))) if len({path[i] for path in paths}) > 1), min(map(len, paths)))
    assert shared_prefix([make_state(path, name=f"s{i}") for i, path in enumerate(paths)]) == count


def test_how_paths_are_cut_does_not_matter(make_state):
    short, long = make_state([1, 2], name="short"), make_state([1], [2, 3], name="long")
    assert merge_prefix([short, long]) is merge_prefix([long, short]) is long


def test_merging_with_itself_changes_nothing(make_state):
    state = make_state([1, 2])
    assert merge_prefix([state]) is merge_prefix([state, state]) is state


def test_nothing_cannot_be_merged():
    with pytest.raises(MergeRefused, match="nothing to merge"):
        merge_prefix([])
    with pytest.raises(MergeRefused, match="nothing to merge"):
        shared_prefix([])


def test_an_unfed_token_belongs_to_the_text(make_state):
    said = make_state([1, 2], name="said", unfed=[3])
    assert merge_prefix([said, make_state([1, 2, 3, 4], name="long")]).id == "long"
    assert merge_prefix([said, make_state([1, 2], name="bare")]) is said
    with pytest.raises(MergeRefused, match="part at token 2") as raised:
        merge_prefix([said, make_state([1, 2, 5, 6], name="long")])
    assert raised.value.data["position"] == 2
    with pytest.raises(MergeRefused, match="part at token 2"):
        merge_prefix([said, make_state([1, 2], name="other", unfed=[9])])


def test_equal_ids_of_different_models_are_not_equal_states(make_state, model, config):
    state = make_state([1, 2])
    others = {
        "weights": make_state([1, 2], name="o", model=replace(model, weights="other")),
        "dtype": make_state([1, 2], name="o", config=replace(config, dtype="bfloat16")),
        "namespace": make_state([1, 2], name="o", namespace="elsewhere"),
    }
    for field, other in others.items():
        for function in (merge_prefix, shared_prefix):
            with pytest.raises(StateMismatch) as raised:
                function([state, other])
            assert raised.value.data["fields"] == [field]


def test_the_name_of_a_model_is_not_compared(make_state, model):
    renamed = make_state([1, 2, 3], name="o", model=replace(model, name="another name"))
    assert merge_prefix([make_state([1, 2]), renamed]) is renamed


def test_the_refusal_says_what_to_do(make_state):
    with pytest.raises(MergeRefused) as raised:
        merge_prefix([make_state([1, 2], name="a"), make_state([1, 3, 4], name="b")])
    assert "states a and b part at token 1" in str(raised.value)
    assert "summary" in raised.value.hint
