"""What each worker is busy with: how long until it is free, and how many threads the next piece of work may use.

Cores are granted, not inherited: a host's cores are divided among the workers that have model work; a lone one gets all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Busy:
    actions: set[str] = field(default_factory=set)
    free_at: float = 0.0


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
            busy.free_at = max(self._clock(), busy.free_at) + seconds
            busy.actions.add(action)

    def end(self, worker: str, action: str) -> None:
        """``action`` is over."""
        with self._lock:
            busy = self._busy.get(worker)
            if busy is not None:
                busy.actions.discard(action)
                if not busy.actions:
                    busy.free_at = self._clock()

    def queue_seconds(self, worker: str) -> float:
        """Predicted seconds until ``worker`` is free."""
        with self._lock:
            busy = self._busy.get(worker)
            return max(0.0, busy.free_at - self._clock()) if busy is not None and busy.actions else 0.0

    def threads_for(self, worker: str, cores: int, neighbours: frozenset[str]) -> int:
        """Threads for one more piece of work on ``worker``, whose host has ``cores`` and these other workers."""
        with self._lock:
            others = sum(1 for name in neighbours if name != worker and name in self._busy and self._busy[name].actions)
        return max(1, cores // (1 + others))
