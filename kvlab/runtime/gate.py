"""The one gate that every action passes before it is submitted: where a run is paused, stepped and cancelled."""

from __future__ import annotations

import threading

from kvlab.errors import Cancelled


class Gate:
    """Open by default. A closed gate lets one action through per :meth:`step`. Thread-safe."""

    def __init__(self, *, closed: bool = False) -> None:
        self._turnstile = threading.Condition()
        self._closed = closed
        self._steps = 0
        self._cancelled = False
        self.waiting: str | None = None
        """What the next action to pass would do, while something waits."""

    @property
    def closed(self) -> bool:
        """Whether actions wait."""
        return self._closed

    def close(self) -> None:
        """Let nothing more through; what runs, runs on."""
        with self._turnstile:
            self._closed = True

    def open(self) -> None:
        """Let everything through."""
        with self._turnstile:
            self._closed = False
            self._turnstile.notify_all()

    def step(self, actions: int = 1) -> None:
        """Let that many actions through."""
        with self._turnstile:
            self._steps += actions
            self._turnstile.notify_all()

    def cancel(self) -> None:
        """Turn away whatever waits now or comes later."""
        with self._turnstile:
            self._cancelled = True
            self._closed = False
            self._turnstile.notify_all()

    def pass_through(self, action: str) -> None:
        """Wait until ``action`` may go on.

        Raises
        ------
        Cancelled
            If the run is cancelled before or while it waits.
        """
        with self._turnstile:
            self.waiting = action
            self._turnstile.wait_for(lambda: self._cancelled or not self._closed or self._steps > 0)
            self.waiting = None
            if self._cancelled:
                raise Cancelled(f"cancelled before {action}", hint="run the workflow again", action=action)
            if self._closed:
                self._steps -= 1
