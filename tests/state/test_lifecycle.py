from __future__ import annotations

import pickle
from itertools import pairwise, product

import pytest

from kvlab.errors import IllegalTransition
from kvlab.state.lifecycle import ALLOWED, Phase, advance


@pytest.mark.parametrize(("now", "then"), list(product(Phase, Phase)))
def test_only_allowed_changes_are_made(now, then):
    if then in ALLOWED[now]:
        assert advance("s", now, then) is then
    else:
        with pytest.raises(IllegalTransition) as raised:
            advance("s", now, then)
        assert raised.value.data == {"state": "s", "now": str(now), "then": str(then)}
        for phase in ALLOWED[now]:
            assert phase in raised.value.hint


def test_every_phase_has_its_changes_and_none_leads_to_itself():
    assert set(ALLOWED) == set(Phase)
    assert all(phase not in ALLOWED[phase] for phase in Phase)
    assert all(ALLOWED.values())


@pytest.mark.parametrize(
    "life",
    [
        "planned materialized resident evictable evicted",
        "planned materialized resident in-transit resident spilled resident evictable resident",
        "planned materialized resident evictable spilled evicted planned materialized",
        "planned evicted planned",
    ],
)
def test_lives_a_state_may_have(life):
    phases = [Phase(word.replace("-", " ")) for word in life.split()]
    for now, then in pairwise(phases):
        advance("s", now, then)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (Phase.RESIDENT, Phase.EVICTED),
        (Phase.EVICTED, Phase.RESIDENT),
        (Phase.PLANNED, Phase.RESIDENT),
        (Phase.IN_TRANSIT, Phase.SPILLED),
    ],
)
def test_short_cuts_that_would_hide_something_are_illegal(now, then):
    with pytest.raises(IllegalTransition):
        advance("s", now, then)


def test_every_state_can_be_evicted_and_come_back():
    def reachable(start):
        seen, todo = set(), [start]
        while todo:
            phase = todo.pop()
            if phase not in seen:
                seen.add(phase)
                todo += ALLOWED[phase]
        return seen

    assert all(reachable(phase) == set(Phase) for phase in Phase)


def test_the_refusal_travels_between_processes():
    with pytest.raises(IllegalTransition) as raised:
        advance("s", Phase.EVICTED, Phase.RESIDENT)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), again.data) == (IllegalTransition, str(raised.value), raised.value.data)
