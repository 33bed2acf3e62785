"""What a browser is told, by a channel that keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kvlab_widgets.channels import Mirror
from kvlab_widgets.export import rows_of
from kvlab_widgets.feeds import LogFeed
from kvlab_widgets.telling import Telling


class Kept:
    """A channel to nobody: what is said is kept."""

    models: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.said: list[dict[str, Any]] = []
        self.heard: Callable[[Mirror], None] = lambda _: None

    def say(self, text: str) -> None:
        self.said.append(json.loads(text))

    def listen(self, heard: Callable[[Mirror], None]) -> None:
        self.heard = heard


def asks(known: int) -> Mirror:
    return {"k": known, "known": known, "selected": "", "live": True, "ask": 1}


def test_who_asks_is_answered_by_the_next_turn_and_at_once_when_there_is_none(small: Any) -> None:
    channel = Kept()
    feed = LogFeed(small.path)
    telling = Telling(feed, channel, lambda: rows_of(small))
    channel.heard(asks(0))
    assert channel.said == []
    assert not telling.turn()
    n = small.events.num_rows
    assert any(batch.get("from") == 0 and batch["to"] == n for batch in channel.said)
    assert channel.said[-1]["over"]
    for known, whole in ((0, True), (n, False)):
        channel.said.clear()
        channel.heard(asks(known))
        assert [batch["to"] for batch in channel.said] == [n] * (1 + whole)
        assert channel.said[-1]["over"]
    assert not telling.turn()
