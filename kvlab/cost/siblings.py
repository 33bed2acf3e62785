"""Siblings are decided together: one batch on one worker, or groups over several, by when the last one is done. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvlab.cost.decide import CHEAPEST, Decision, Policy, decide
from kvlab.cost.world import Edge, View

MOST_GROUPS = 3
"""More workers than this are not tried for one batch: what a batch saves is mostly gone by then."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """One branch: the tokens it feeds, and the most it generates."""

    new_tokens: int
    n_steps: int


@dataclass(frozen=True, slots=True)
class Group:
    """Branches (by index) that run as one batch, the decision of their edge, and when they are predicted to be done."""

    members: tuple[int, ...]
    decision: Decision
    done_seconds: float


def decide_siblings(
    edge: Edge, siblings: Sequence[Sibling], view: View, policy: Policy = CHEAPEST
) -> tuple[Group, ...]:
    """The grouping whose last branch is done first; of equal ones that with the fewest groups.

    Parameters
    ----------
    edge
        Of all of them; ``new_tokens``, ``n_branches`` and ``n_steps`` are set here for each group.
    siblings
        At least one.

    Notes
    -----
    Groups that run at the same time on one host share its cores.
    """
    candidates = [w.name for w in view.workers if view.candidates is None or w.name in view.candidates]
    best: tuple[Group, ...] = (_group(edge, siblings, tuple(range(len(siblings))), view, policy),)
    for n_groups in range(2, min(len(siblings), len(candidates), MOST_GROUPS) + 1):
        parts = _parts(len(siblings), n_groups)
        for names in itertools.permutations(candidates, n_groups):
            groups = _together(edge, siblings, parts, names, view, policy)
            if _done(groups) < _done(best):
                best = groups
    return best


def _together(
    edge: Edge,
    siblings: Sequence[Sibling],
    parts: Sequence[tuple[int, ...]],
    names: Sequence[str],
    view: View,
    policy: Policy,
) -> tuple[Group, ...]:
    hosts = {worker.name: worker.host for worker in view.workers}
    on_host = [hosts[name] for name in names]
    sharing = tuple(
        replace(worker, threads=max(1, worker.threads // max(1, on_host.count(worker.host)))) for worker in view.workers
    )
    return tuple(
        _group(edge, siblings, part, replace(view, workers=sharing, candidates=frozenset({name})), policy)
        for part, name in zip(parts, names, strict=True)
    )


def _group(edge: Edge, siblings: Sequence[Sibling], members: tuple[int, ...], view: View, policy: Policy) -> Group:
    these = [siblings[index] for index in members]
    own = replace(
        edge,
        new_tokens=sum(one.new_tokens for one in these),
        n_branches=len(these),
        n_steps=max(one.n_steps for one in these),
    )
    decision = decide(own, view, policy)
    worker = next(worker for worker in view.workers if worker.name == decision.chosen.worker)
    steps = max(0, own.n_steps - 1)
    decoding = view.cost.decode.seconds(steps, own.n_branches, own.n_tokens, worker.threads)
    return Group(members, decision, decision.chosen.seconds + decoding)


def _parts(n: int, n_groups: int) -> list[tuple[int, ...]]:
    """0..n-1 in runs of nearly equal length."""
    cuts = [n * i // n_groups for i in range(n_groups + 1)]
    return [tuple(range(start, end)) for start, end in itertools.pairwise(cuts)]


def _done(groups: Sequence[Group]) -> float:
    return max(group.done_seconds for group in groups)
