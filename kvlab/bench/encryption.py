"""What TLS costs: the same lab twice, encrypted as it is by default and not, side by side; both do the same in turns.

A lab that is opened for this is closed again, its workers and the model in them included. What it takes to make a
process's first certificate is not in it: that is done once, before the first round that counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvlab.bench.handoff import Handoff, Metrics, in_turns, look_at, read
from kvlab.bench.summary import median_of, ratio_of_medians

if TYPE_CHECKING:
    from kvlab.progress import Progress
    from kvlab.runtime.lab import Lab

N_TOKENS = 2_048
"""Of the state that is handed on."""

OPENINGS, QUICK_OPENINGS = 5, 1
"""Rounds of opening: each opens two labs of two workers."""


def opening(model: str, rounds: int, progress: Progress) -> Metrics:
    """Opening a lab of two workers, until both have loaded the model and nothing is left to be measured."""
    from kvlab.runtime.lab import Lab

    def opened(*, security: bool) -> float:
        began = time.perf_counter()
        with Lab(model=model, workers=2, same_host="map", security=security, progress=progress):
            return time.perf_counter() - began

    encrypted, plain = in_turns([lambda: opened(security=True), lambda: opened(security=False)], rounds)
    return {
        "tls_open_ratio": ratio_of_medians(encrypted, plain),
        "tls_open_seconds": median_of(encrypted, "s"),
        "plain_open_seconds": median_of(plain, "s"),
    }


def handing_over(encrypted: Lab, plain: Lab, road: str, rounds: int) -> Metrics:
    """A state from worker to worker, as a client sees it: its bytes with their checksum, or mapped and looked at."""
    nbytes = N_TOKENS * plain.core.config.bytes_per_token
    task = read if road == "transfer" else look_at
    states = [Handoff(lab, nbytes) for lab in (encrypted, plain)]
    taken = in_turns([lambda state=state: state.over(road, task).task_seconds for state in states], rounds)  # type: ignore[misc]
    tls, bare = ([1e3 * one for one in seconds] for seconds in taken)
    name = "frames" if road == "transfer" else "map"
    return {
        f"tls_{name}_ratio@{N_TOKENS}": ratio_of_medians(tls, bare),
        f"tls_{name}_ms@{N_TOKENS}": median_of(tls, "ms"),
        f"plain_{name}_ms@{N_TOKENS}": median_of(bare, "ms"),
    }
