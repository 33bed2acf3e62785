"""What a browser is told: batches of rows, each with its numbers, and a sign of life when nothing happens."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable
from typing import Any

from kvlab_widgets.feeds import Feed
from kvlab_widgets.inspector import Inspector
from kvlab_widgets.packing import as_json
from kvlab_widgets.rows import RunRows

BATCH_SECONDS = 0.1
"""Between two batches: more often than an eye follows costs the browser and shows nothing."""

LIFE_SECONDS = 1.0
"""Between two signs of life; the browser gives up after five of them."""


class Telling:
    """Carries a feed's rows to an inspector, one JSON text a batch, at most one each :data:`BATCH_SECONDS`.

    Parameters
    ----------
    push
        Called after the inspector's ``tail`` was set.
    again
        All rows so far as one batch, for a browser that lost some.
    opened
        Called before a browser that is new is answered: what is pushed has to reach it.
    """

    def __init__(
        self,
        feed: Feed,
        inspector: Inspector,
        push: Callable[[], None],
        again: Callable[[], RunRows],
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        self._feed, self._inspector, self._push, self._again, self._opened = feed, inspector, push, again, opened
        self._asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._mounts: set[str] = set()
        self._said = time.monotonic()
        self._told, self._told_at = feed.rows.n_events, float("-inf")
        self._beats = 0
        self.over = False

    def turn(self) -> bool:
        """Tell what is new, if anything is. Returns whether there will be more."""
        if self.over:
            return False
        while not self._asked.empty():
            self._answer(self._asked.get())
        more = self._feed.poll()
        if self._feed.rows.n_events > self._told and (not more or time.monotonic() - self._told_at >= BATCH_SECONDS):
            self._told, self._told_at = self._feed.rows.n_events, time.monotonic()
            self._say(as_json(self._feed.rows.take()))
        if not more:
            self.over = True
            self._feed.close()
        if not more or time.monotonic() - self._said > LIFE_SECONDS:
            self._sign()
        return more

    def heard(self, mirror: dict[str, Any]) -> None:
        """A browser says what it knows. If it asks, the next turn answers: with what it lacks, or with a sign of life."""
        if not mirror["ask"][0]:
            return
        self._asked.put(mirror)
        if self.over:
            self._answer(self._asked.get())

    def _answer(self, mirror: dict[str, Any]) -> None:
        mount = str(mirror["mount"][0])
        if mount not in self._mounts:
            self._mounts.add(mount)
            self._opened()
        if mirror["known"][0] < self._feed.rows.n_events:
            self._say(as_json(self._again().take()))
        self._sign()

    def _sign(self) -> None:
        self._beats += 1
        self._say(json.dumps({"to": self._feed.rows.n_events, "beat": self._beats, "over": self.over}))

    def _say(self, text: str) -> None:
        self._inspector.tail.text = text
        self._said = time.monotonic()
        self._push()
