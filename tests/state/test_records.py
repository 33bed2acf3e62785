from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.state.tokens import pack_ids

CUTS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=4)


@given(cuts=CUTS)
def test_lengths_and_bytes_of_a_state_are_those_of_its_segments(make_state, cuts):
    state = make_state(*cuts)
    ids = [id_ for cut in cuts for id_ in cut]
    assert state.n_tokens == len(ids)
    assert state.path_ids == pack_ids(ids)
    assert state.nbytes == len(ids) * state.config.bytes_per_token
    ends = [0, *(segment.end for segment in state.segments)]
    assert [segment.start for segment in state.segments] == ends[:-1]


def test_the_empty_state_is_the_root(make_state):
    state = make_state()
    assert (state.n_tokens, state.nbytes, state.path_ids) == (0, 0, b"")


def test_an_unfed_token_has_no_place_in_the_path(make_state):
    state = make_state([1, 2], unfed=[3])
    assert (state.n_tokens, state.path_ids) == (2, pack_ids([1, 2]))


def test_states_cannot_be_changed_and_travel_whole(make_state):
    state = make_state([1, 2], [3])
    with pytest.raises(FrozenInstanceError):
        state.name = "other"
    with pytest.raises(FrozenInstanceError):
        state.segments[0].nbytes = 0
    again = pickle.loads(pickle.dumps(state))
    assert again == state
    assert hash(again) == hash(state)
