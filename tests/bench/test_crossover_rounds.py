"""What is run beside what in one round of the crossover. The links here only wait."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

from kvlab.bench.crossover_links import Taken
from kvlab.bench.crossover_rounds import Took, round_of

CARRY = {0.25: 1.4, 1.0: 0.7, 4.0: 0.2, None: 0.05}
ARM = 0.05


class Waiting:
    """A link whose arms take a known time, and which notes when each was at work."""

    def __init__(self, name: float | None, noted: list[tuple[float | None, str, float, float]]) -> None:
        self._name, self._noted = name, noted

    def prepare(self, n_tokens: int, n_states: int, folder: str) -> dict[str, Any]:
        return {}  # it has no states

    def take(self, n_edges: int, how: str | None) -> Taken:
        began = time.monotonic()
        time.sleep(CARRY[self._name] if how == "transfer" else ARM)
        self._noted.append((self._name, how or "ours", began, time.monotonic()))
        return Taken(time.monotonic() - began, 1.0, {how or "transfer": n_edges})


def test_every_arm_is_run_once_and_none_where_states_arrive() -> None:
    noted: list[tuple[float | None, str, float, float]] = []
    links = {name: Waiting(name, noted) for name in CARRY}
    took: Took = {}
    wanted = sorted((str(name), how) for name in CARRY for how in ("transfer", "recompute", "hybrid", "ours"))
    for number in range(2):
        noted.clear()
        found = list(round_of(links, 2, number, took))
        assert sorted((str(name), how) for name, how, _ in found) == wanted
        assert len([how for _, how, *_ in noted if how == "recompute"]) == 1
        carried = {name: (began, ended) for name, how, began, ended in noted if how == "transfer" and name is not None}
        others = sorted((began, ended, name) for name, how, began, ended in noted if how != "transfer" or name is None)
        assert all(one[1] <= other[0] for one, other in pairwise(others))  # arms that compute are never at once
        beside = [one for one in others if one[0] < carried[0.25][1]]
        assert bool(beside) == (number == 1)  # what a carry takes is known from the first round
        for began, ended, name in beside:
            assert began >= carried[4.0][1]
            assert all(
                name != link and not began < arrived < ended
                for link, (_, arrived) in carried.items()
                if began < arrived
            )
        took = {(name, how): [taken.seconds / 2] for name, how, taken in found}
