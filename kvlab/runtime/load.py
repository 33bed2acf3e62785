"""What each worker and each link is busy with: how long until it is free, and how many threads the next work may use.

Cores are granted, not inherited: a host's cores are divided among the workers that have model work; a lone one gets all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Busy:
    """Actions in the order they were given, with their predicted seconds, and since when the first of them runs."""

    actions: dict[str, float] = field(default_factory=dict)
    since: float = 0.0


class Load:
    """Outstanding work by worker. Thread-safe; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._busy: dict[str, _Busy] = {}

    def begin(self, worker: str, action: str, seconds: float) -> None:
        """``action`` was given to ``worker`` and is predicted to take ``seconds``."""
        with self._lock:
            busy = self._busy.setdefault(worker, _Busy())
            if not busy.actions:
                busy.since = self._clock()
            busy.actions[action] = seconds

    def end(self, worker: str, action: str) -> None:
        """``action`` is over: the next in line runs from now on. Unknown ones are ignored."""
        with self._lock:
            busy = self._busy.get(worker)
            if busy is not None and action in busy.actions:
                if action == next(iter(busy.actions)):
                    busy.since = self._clock()
                del busy.actions[action]

    def queue_seconds(self, worker: str) -> float:
        """Predicted seconds until ``worker`` is free: what is left of the action that runs, and those behind it."""
        with self._lock:
            busy = self._busy.get(worker)
            if busy is None or not busy.actions:
                return 0.0
            running, *behind = busy.actions.values()
            return max(0.0, running - (self._clock() - busy.since)) + sum(behind)

    def threads_for(self, worker: str, cores: int, neighbours: frozenset[str]) -> int:
        """Threads for one more piece of work on ``worker``, whose host has ``cores`` and these other workers."""
        with self._lock:
            others = sum(1 for name in neighbours if name != worker and name in self._busy and self._busy[name].actions)
        return max(1, cores // (1 + others))
