"""One round of the crossover: every arm of every link once.

To compute again crosses no link: it is run once, by the workers of one link, and counts for all. To move whole states
over a slow link is to wait while hardly a processor works, so the slow links carry theirs at the same time, each its own;
and beside those that are no faster than the break-even the other arms of other links are run. None of these is begun that
is expected to be at work when states have arrived: what is resumed then has the machine for itself, as every arm has that
computes. What an arm will take is known from the rounds before; the first one runs nothing beside a carry.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from kvlab.bench.crossover_links import Link, Taken

Name = float | None
"""A link, by its rate as a multiple of the break-even rate; None: as fast as it goes."""

Arm = tuple[Name, str]
Took = dict[Arm, list[float]]

BESIDE = 1.0
"""A carry over a link at most so fast leaves the machine to others: some 20 MB/s to copy."""

EARLY, LATE = 0.95, 1.15
"""By how much what is expected may be missed: a carry may end early, an arm late."""

MARGIN_SECONDS = 0.3


def round_of(links: Mapping[Name, Link], n_edges: int, number: int, took: Took) -> Iterator[tuple[Name, str, Taken]]:
    """Run all arms of round ``number``; ``how`` of each is ``transfer``, ``recompute``, ``hybrid`` or ``ours``.

    Parameters
    ----------
    took
        Seconds of each arm per edge, in earlier rounds of the same context.
    """
    names, slow = list(links), [name for name in links if name is not None]
    fast = [name for name in names if name is None]
    arms: list[Arm] = [((fast or names)[0], "recompute"), *((name, "transfer") for name in fast)]
    arms += [(name, how) for name in names for how in ("hybrid", "ours")]
    first = 3 * number % len(arms)  # who goes first changes
    arms = arms[first:] + arms[:first]

    def take(arm: Arm) -> Taken:
        name, how = arm
        return links[name].take(n_edges, None if how == "ours" else how)

    with ThreadPoolExecutor(max(1, len(slow))) as pool:
        began = time.monotonic()
        carried: dict[Future[Taken], float] = {pool.submit(take, (name, "transfer")): name for name in slow}
        while arms or carried:
            chosen = next((arm for arm in arms if _fits(arm, n_edges, began, carried.values(), took)), None)
            if chosen is not None:
                arms.remove(chosen)
                taken = take(chosen)
                for name in names if chosen[1] == "recompute" else [chosen[0]]:
                    yield name, chosen[1], taken
            else:
                wait(carried, return_when=FIRST_COMPLETED)
            for done in [future for future in carried if future.done()]:
                yield carried.pop(done), "transfer", done.result()


def _fits(arm: Arm, n_edges: int, began: float, carrying: Collection[float], took: Took) -> bool:
    """Whether ``arm`` may be begun now beside what is carried since ``began``."""
    now = time.monotonic()
    for name in carrying:
        carry, this = took.get((name, "transfer")), took.get(arm)
        if arm[0] == name or name > BESIDE or carry is None or this is None:
            return False
        if now + LATE * n_edges * max(this) + MARGIN_SECONDS > began + EARLY * n_edges * min(carry):
            return False
    return True
