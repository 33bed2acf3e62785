"""What a browser is told: batches of rows, each with its numbers, and a sign of life when nothing happens."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Callable

from kvlab_widgets.channels import Channel, Mirror
from kvlab_widgets.feeds import Feed
from kvlab_widgets.packing import as_json
from kvlab_widgets.rows import RunRows

BATCH_SECONDS = 0.1
"""Between two batches: more often than an eye follows costs the browser and shows nothing."""

LIFE_SECONDS = 1.0
"""Between two signs of life; the browser gives up after five of them."""


class Telling:
    """Carries a feed's rows through a channel, one JSON text a batch, at most one each :data:`BATCH_SECONDS`.

    Parameters
    ----------
    again
        All rows so far as one batch, for a browser that lost some.

    Attributes
    ----------
    mirror
        What the browser said last.
    """

    def __init__(self, feed: Feed, channel: Channel, again: Callable[[], RunRows]) -> None:
        self._feed, self._channel, self._again = feed, channel, again
        self._asked: queue.SimpleQueue[Mirror] = queue.SimpleQueue()
        self.mirror: Mirror = {"k": 0, "live": True}
        channel.listen(self._heard)
        self._said = time.monotonic()
        self._told, self._told_at = feed.rows.n_events, float("-inf")
        self._beats = 0
        self.over = False

    def turn(self) -> bool:
        """Tell what is new, if anything is. Returns whether there will be more."""
        if self.over:
            return False
        self._answer_all()
        more = self._feed.poll()
        if self._feed.rows.n_events > self._told and (not more or time.monotonic() - self._told_at >= BATCH_SECONDS):
            self._told, self._told_at = self._feed.rows.n_events, time.monotonic()
            self._say(as_json(self._feed.rows.take()))
        if not more:
            self.over = True
            self._feed.close()
        if not more or time.monotonic() - self._said > LIFE_SECONDS:
            self._sign()
        if self.over:
            self._answer_all()  # who asked before that, and looked whether it is over before that too
        return more

    def _heard(self, mirror: Mirror) -> None:
        """A browser says what it knows. If it asks, the next turn answers: with what it lacks, or with a sign of life."""
        self.mirror = mirror
        if not mirror["ask"]:
            return
        self._asked.put(mirror)
        if self.over:
            self._answer_all()

    def _answer_all(self) -> None:
        """Answer what was asked; the thread that follows and the one that hears may both be at it."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._answer(self._asked.get_nowait())

    def _answer(self, mirror: Mirror) -> None:
        if mirror["known"] < self._feed.rows.n_events:
            self._say(as_json(self._again().take()))
        self._sign()

    def _sign(self) -> None:
        self._beats += 1
        self._say(json.dumps({"to": self._feed.rows.n_events, "beat": self._beats, "over": self.over}))

    def _say(self, text: str) -> None:
        self._channel.say(text)
        self._said = time.monotonic()
