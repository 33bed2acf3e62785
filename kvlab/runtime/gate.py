"""The one gate that every action passes before it is submitted: where a run is paused, stepped, played and cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from kvlab.errors import Cancelled

HEARING_SECONDS = 0.02


class Gate:
    """Open by default. A closed gate lets one action through per :meth:`step`. Thread-safe.

    It remembers when actions were held, so that no metric counts a person's thinking.
    """

    def __init__(self, *, closed: bool = False) -> None:
        self._turnstile = threading.Condition()
        self._closed = closed
        self._steps = 0
        self._cancelled = False
        self._every = 0.0
        self._next_at = 0.0
        self._stops: frozenset[str] = frozenset()
        self._begun = not closed
        self._waiting: dict[int, tuple[str, frozenset[str]]] = {}
        self._held: list[tuple[int, int]] = []
        self._holding: dict[int, int] = {}

    @property
    def closed(self) -> bool:
        """Whether actions wait."""
        return self._closed

    @property
    def waiting(self) -> str | None:
        """The action that has waited longest; None when nothing waits."""
        with self._turnstile:
            return next((action for action, _ in self._waiting.values()), None)

    @property
    def was_held(self) -> bool:
        """Whether any action ever had to wait here."""
        with self._turnstile:
            return bool(self._held or self._holding)

    def held_ns(self, since: int, until: int) -> int:
        """How much of the time between two readings of ``time.time_ns`` some action was held."""
        with self._turnstile:
            now = time.time_ns()
            spans = sorted([*self._held, *((began, now) for began in self._holding.values())])
        total, reached = 0, since
        for began, ended in spans:
            total += max(0, min(ended, until) - max(began, reached))
            reached = max(reached, min(ended, until))
        return total

    def close(self) -> None:
        """Let nothing more through; what runs, runs on."""
        with self._turnstile:
            self._closed = True

    def open(self, every: float = 0.0, stops: Collection[str] = ()) -> None:
        """Let everything through, at most one action in ``every`` seconds. Steps that nothing has taken are forgotten.

        It closes before the next action of which something is in ``stops`` (agents, operators). The next is one that
        has not arrived, or that waits since a gate was made closed: whether it came before this call does not matter.
        """
        with self._turnstile:
            begun, self._begun = self._begun, True
            self._stops = frozenset(stops)
            self._closed = not begun and any(self._stops & subjects for _, subjects in self._waiting.values())
            self._steps = 0
            self._every, self._next_at = every, time.monotonic()
            self._turnstile.notify_all()

    def step(self, actions: int = 1) -> None:
        """Let that many actions through a closed gate; an open one needs no steps and keeps none."""
        with self._turnstile:
            self._begun = True
            if self._closed:
                self._steps += actions
            self._turnstile.notify_all()

    def cancel(self) -> None:
        """Turn away whatever waits now or comes later."""
        with self._turnstile:
            self._cancelled = True
            self._closed = False
            self._turnstile.notify_all()

    def pass_through(
        self, action: str, meanwhile: Callable[[], None] | None = None, subjects: Collection[str] = ()
    ) -> bool:
        """Wait until ``action`` may go on, calling ``meanwhile`` every few milliseconds. Returns whether it had to wait.

        The gate closes by itself if any of ``subjects`` is to be stopped at. Nothing in ``meanwhile`` may pass the gate.

        Raises
        ------
        Cancelled
            If the run is cancelled before or while it waits.
        """
        me = threading.get_ident()
        with self._turnstile:
            self._waiting[me] = action, frozenset(subjects)
            if self._stops.intersection(subjects) and not self._steps:
                self._closed = True
        began = None
        try:
            while not self._passed(me, action, HEARING_SECONDS if meanwhile is not None else None):
                if meanwhile is not None:
                    meanwhile()
        finally:
            with self._turnstile:
                del self._waiting[me]
                began = self._holding.pop(me, None)
                if began is not None:
                    self._held.append((began, time.time_ns()))
        return began is not None

    def _passed(self, me: int, action: str, seconds: float | None) -> bool:
        with self._turnstile:
            if not self._may_pass():
                self._holding.setdefault(me, time.time_ns())
                if self._every and not self._closed:
                    seconds = max(0.001, min(seconds or self._every, self._next_at - time.monotonic()))
                if not self._turnstile.wait_for(self._may_pass, seconds):
                    return False
            if self._cancelled:
                raise Cancelled(f"cancelled before {action}", hint="run the workflow again", action=action)
            if self._closed:
                self._steps -= 1
            self._next_at = time.monotonic() + self._every
            return True

    def _may_pass(self) -> bool:
        return self._cancelled or self._steps > 0 or (not self._closed and time.monotonic() >= self._next_at)
