"""The one gate that every action passes before it is submitted: where a run is paused, stepped and cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvlab.errors import Cancelled

HEARING_SECONDS = 0.02


class Gate:
    """Open by default. A closed gate lets one action through per :meth:`step`. Thread-safe."""

    def __init__(self, *, closed: bool = False) -> None:
        self._turnstile = threading.Condition()
        self._closed = closed
        self._steps = 0
        self._cancelled = False
        self._waiting: dict[int, str] = {}

    @property
    def closed(self) -> bool:
        """Whether actions wait."""
        return self._closed

    @property
    def waiting(self) -> str | None:
        """The action that has waited longest; None when nothing waits."""
        with self._turnstile:
            return next(iter(self._waiting.values()), None)

    def close(self) -> None:
        """Let nothing more through; what runs, runs on."""
        with self._turnstile:
            self._closed = True

    def open(self) -> None:
        """Let everything through. Steps that nothing has taken are forgotten."""
        with self._turnstile:
            self._closed = False
            self._steps = 0
            self._turnstile.notify_all()

    def step(self, actions: int = 1) -> None:
        """Let that many actions through a closed gate; an open one needs no steps and keeps none."""
        with self._turnstile:
            if self._closed:
                self._steps += actions
            self._turnstile.notify_all()

    def cancel(self) -> None:
        """Turn away whatever waits now or comes later."""
        with self._turnstile:
            self._cancelled = True
            self._closed = False
            self._turnstile.notify_all()

    def pass_through(self, action: str, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until ``action`` may go on, calling ``meanwhile`` every few milliseconds.

        Raises
        ------
        Cancelled
            If the run is cancelled before or while it waits.
        """
        me = threading.get_ident()
        with self._turnstile:
            self._waiting[me] = action
        try:
            while not self._passed(action, HEARING_SECONDS if meanwhile is not None else None):
                if meanwhile is not None:
                    meanwhile()
        finally:
            with self._turnstile:
                del self._waiting[me]

    def _passed(self, action: str, seconds: float | None) -> bool:
        with self._turnstile:
            if not self._turnstile.wait_for(lambda: self._cancelled or not self._closed or self._steps > 0, seconds):
                return False
            if self._cancelled:
                raise Cancelled(f"cancelled before {action}", hint="run the workflow again", action=action)
            if self._closed:
                self._steps -= 1
            return True
