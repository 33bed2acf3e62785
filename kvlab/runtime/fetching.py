"""A Dask worker that does not fetch for ever.

Dask asks for what a task needs again and again, as long as the scheduler says that somebody has it: where the link to
that worker is cut, or this process has no descriptor left for a connection, its task would never start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from distributed import Worker
from distributed.worker_state_machine import GatherDepNetworkFailureEvent, GatherDepSuccessEvent

from kvlab.runtime.keys import BACK, recipe_in
from kvlab.transport.segment import undelivered

FETCHES = 3
"""How often a segment is asked for. Between two of them a second passes, and up to five until a connection is given up."""


class SegmentWorker(Worker):
    """After :data:`FETCHES` failures in a row a segment counts as arrived, without its payload: whoever uses it raises.

    So a fetch ends as one does whose bytes cannot be read, see :mod:`kvlab.transport.serializers`.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._failures: Counter[str] = Counter()

    async def gather_dep(self, worker: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str) -> Any:
        """As Dask's: what became of asking ``worker`` for these keys."""
        event = await super().gather_dep(worker, to_gather, total_nbytes, stimulus_id=stimulus_id)
        if not isinstance(event, GatherDepNetworkFailureEvent):
            for key in to_gather:
                self._failures.pop(key, None)
            return event
        given_up: dict[Any, object] = {}
        for key in to_gather:
            recipe = recipe_in(str(key).removeprefix(BACK))
            if recipe is None:
                continue
            self._failures[key] += 1
            if self._failures[key] == FETCHES:
                del self._failures[key]
                given_up[key] = undelivered(recipe, f"{worker} could not be reached, {FETCHES} times")
        if not given_up:
            return event
        return GatherDepSuccessEvent(
            worker=worker, total_nbytes=total_nbytes, data=given_up, stimulus_id=event.stimulus_id
        )
