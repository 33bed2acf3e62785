"""What a browser is told: batches of rows, each with its numbers, and a sign of life when nothing happens."""

from __future__ import annotations

import json
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
    """Carries a feed's rows to an inspector, one JSON text a batch.

    Parameters
    ----------
    push
        Called after the inspector's ``tail`` was set.
    again
        All rows so far as one batch, for a browser that lost some.
    """

    def __init__(
        self, feed: Feed, inspector: Inspector, push: Callable[[], None], again: Callable[[], RunRows]
    ) -> None:
        self._feed, self._inspector, self._push, self._again = feed, inspector, push, again
        self._said = time.monotonic()
        self._beats = 0
        self.over = False

    def turn(self) -> bool:
        """Tell what is new, if anything is. Returns whether there will be more."""
        if self.over:
            return False
        before = self._feed.rows.n_events
        more = self._feed.poll()
        if self._feed.rows.n_events > before:
            self._say(as_json(self._feed.rows.take()))
        if not more:
            self.over = True
            self._feed.close()
        if not more or time.monotonic() - self._said > LIFE_SECONDS:
            self._sign()
        return more

    def heard(self, mirror: dict[str, Any]) -> None:
        """A browser says what it knows: answer with a snapshot if it asks, else with a sign of life."""
        if mirror["ask"][0] and mirror["known"][0] < self._feed.rows.n_events:
            self._say(as_json(self._again().take()))
        if mirror["ask"][0]:
            self._sign()

    def _sign(self) -> None:
        self._beats += 1
        self._say(json.dumps({"to": self._feed.rows.n_events, "beat": self._beats, "over": self.over}))

    def _say(self, text: str) -> None:
        self._inspector.tail.text = text
        self._said = time.monotonic()
        self._push()
