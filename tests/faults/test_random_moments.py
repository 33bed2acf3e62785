"""A worker that is killed at a moment drawn by chance: the answers of the run in which nobody died."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvlab
from kvlab.workloads import build

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 3


class Undisturbed:
    """Workflows whose answers are known, and how many events a run of each has."""

    def __init__(self, lab: Any, flows: list[kvlab.Workflow], answers: Callable[[Any], Any]) -> None:
        self.lab, self.flows, self._answers = lab, flows, answers
        self.said: list[Any] = []
        self.n_events: list[int] = []
        for flow in flows:
            run = lab.run(flow).wait()
            self.said.append(answers(run))
            self.n_events.append(sum(bool(event["action"]) for event in run.events.to_pylist()))

    def killed_at_random(self, number: int, random_kill: Any, edges: Callable[[Any], Any]) -> str:
        """Run one of them with a kill in it, and compare. Returns at what the kill hit."""
        which = number % len(self.flows)
        drawn = random.Random(f"moment {number}")
        kill = random_kill(self.lab, drawn.randrange(1, self.n_events[which] * 3 // 4), drawn)
        run = self.lab.run(self.flows[which]).wait(100)
        kill.over()
        told = f"moment {number}: {kill.victim} killed at {kill.where}"
        assert self._answers(run) == self.said[which], told
        for edge in edges(run).values():
            assert edge["actual_how"], told
            assert edge["actual_how"] == edge["chosen"] or edge["because"], (told, edge)
        return str(kill.where)


@pytest.fixture(scope="module")
def known(make_lab: Callable[..., Any], answers: Any) -> Iterator[Undisturbed]:
    """Three workers, so that two go on while one comes back. Prefills in small pieces have many moments to be killed in."""
    with make_lab(workers=3, prefill_chunk=8, kv_budget="64 MiB", namespace="moments") as lab:
        yield Undisturbed(lab, [build(name, TEXT, max_new_tokens=6) for name in ("tree", "debate")], answers)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "moments", [range(5), pytest.param(range(5, 20), marks=pytest.mark.slow)], ids=["five", "fifteen more"]
)
def test_twenty_moments(known: Undisturbed, moments: range, faults: Any, random_kill: Any, edges: Any) -> None:
    """Which moments and which workers is drawn from the moment's number."""
    hit = []
    for number in moments:
        # Two are left then, or one: a worker is killed also while another one comes back.
        faults.wait_for(lambda: len(faults.up(known.lab)) >= 2)
        hit.append(known.killed_at_random(number, random_kill, edges))
    assert len(set(hit)) > len(moments) // 3, hit  # the moments are not all alike


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(400)
def test_three_moments_on_smollm2(
    make_lab: Any, smollm2: Path, faults: Any, random_kill: Any, answers: Any, edges: Any
) -> None:
    flow = build("chain", kvlab.sample_text()[:1500], max_new_tokens=12)
    with make_lab(model=str(smollm2), prefill_chunk=64, kv_budget="1 GiB", namespace="moments") as lab:
        known = Undisturbed(lab, [flow], answers)
        for number in range(3):
            faults.wait_for_all(lab)
            known.killed_at_random(number, random_kill, edges)
