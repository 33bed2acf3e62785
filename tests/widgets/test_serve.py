"""A page that follows a run which another process writes: served to this machine alone, under a secret path."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.page import PageServer

from kvlab.store.log import EventLog
from kvlab.store.runs import new_run_folder, open_run

pytestmark = pytest.mark.browser


@pytest.fixture
def served() -> Iterator[Callable[..., PageServer]]:
    """``served(run)``: a page server in a thread."""
    made: list[tuple[PageServer, threading.Thread]] = []

    def serve(run: Any) -> PageServer:
        ready, found = threading.Event(), []

        def work() -> None:
            import asyncio

            asyncio.set_event_loop(asyncio.new_event_loop())
            found.append(PageServer(run))
            ready.set()
            found[0].run()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert ready.wait(20)
        made.append((found[0], thread))
        return found[0]

    yield serve
    for server, thread in made:
        server.stop()
        thread.join(10)


@pytest.fixture
def writing(tmp_path: Path, review: Any) -> Any:
    """A run folder being written: (folder, its events)."""
    return new_run_folder("live", root=tmp_path), review.review_events("state")


def wait_for(shown: Any, n: int) -> None:
    shown.page.wait_for_function(
        "n => document.querySelector('[data-kv=\"inspector\"]').kvlab.store.n === n", arg=n, timeout=10_000
    )


def test_it_follows_a_run_that_goes_on_and_says_when_it_is_over(served: Any, writing: Any, opened: Any) -> None:
    folder, events = writing
    log: EventLog = folder.log
    log.append(events[:40])
    log.flush()
    shown = opened(served(open_run(folder.path)).url)
    assert shown.text("status") == "live, read only"
    assert "run.step()" in shown.page.locator('[data-kv="status"]').get_attribute("title")
    wait_for(shown, 40)
    for start in range(40, 100, 20):
        log.append(events[start : start + 20])
        log.flush()
    wait_for(shown, 100)
    shown.drawn(100)  # what is live moves with the run
    shown.move(60)
    log.append(events[100:-1])
    log.flush()
    wait_for(shown, len(events) - 1)
    assert shown.root.get_attribute("data-kv-k") == "60"  # who looks back is left in peace
    assert shown.text("status") == f"paused, {len(events) - 61} new"
    log.append(events[-1:])
    folder.complete()
    shown.page.wait_for_function(
        "() => !document.querySelector('[data-kv=\"inspector\"]').kvlab.running", timeout=10_000
    )
    shown.move(len(events))
    assert shown.text("status") == "run done"
    world = open_run(folder.path).world
    assert [row[0] for row in shown.rows("graph")] == [row["state"] for row in world.rows["states"]][::-1]
    assert shown.foreign() == []
    assert shown.errors == []


def test_a_server_that_is_gone_is_said(served: Any, writing: Any, opened: Any) -> None:
    folder, events = writing
    folder.log.append(events[:30])
    folder.log.flush()
    server = served(open_run(folder.path))
    shown = opened(server.url)
    wait_for(shown, 30)
    server.stop()
    shown.page.wait_for_function("() => document.querySelector('[data-kv=\"inspector\"]').kvlab.lost", timeout=15_000)
    assert shown.text("status") == "disconnected, at event 30"
    shown.move(3)  # what is here can still be stepped through
    assert shown.text("position").startswith("3")


def test_nothing_is_served_without_the_token(served: Any, small: Any) -> None:
    server = served(small)
    base, _, token = server.url.rpartition("/")
    assert base.startswith("http://127.0.0.1:")
    assert len(token) >= 32
    for path in ("/", "/index.html", "/x"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{base}{path}", timeout=5)
        assert caught.value.code == 404
        assert token not in caught.value.read().decode()
    assert urllib.request.urlopen(server.url, timeout=5).status == 200


def test_a_reload_shows_everything_so_far(served: Any, writing: Any, opened: Any) -> None:
    folder, events = writing
    folder.log.append(events[:50])
    folder.log.flush()
    shown = opened(served(open_run(folder.path)).url)
    wait_for(shown, 50)
    folder.log.append(events[50:80])
    folder.log.flush()
    wait_for(shown, 80)
    shown.page.reload()
    shown.page.wait_for_selector('[data-kv-ready="1"]')
    wait_for(shown, 80)
    time.sleep(0.3)
    assert shown.text("status") == "live, read only"
    assert shown.errors == []


def test_a_reload_comes_back_where_it_was(served: Any, writing: Any, opened: Any) -> None:
    folder, events = writing
    folder.log.append(events[:50])
    folder.log.flush()
    shown = opened(served(open_run(folder.path)).url)
    wait_for(shown, 50)
    shown.root.evaluate("root => root.kvlab.select(0)")
    chosen = shown.root.get_attribute("data-kv-selected")
    shown.move(31)
    shown.page.wait_for_function(
        "() => Object.values(sessionStorage).some(kept => JSON.parse(kept).k === 31)", timeout=5_000
    )
    folder.log.append(events[50:60])
    folder.log.flush()
    shown.page.reload()
    shown.page.wait_for_selector('[data-kv-ready="1"]')
    wait_for(shown, 60)
    shown.drawn(31)
    assert shown.root.get_attribute("data-kv-selected") == chosen
    assert shown.text("status") == "paused, 29 new"
    shown.page.keyboard.press("End")
    assert shown.errors == []


def test_a_run_whose_process_was_killed_is_not_waited_for(
    served: Any, tmp_path: Path, review: Any, opened: Any
) -> None:
    folder = new_run_folder("killed", root=tmp_path)
    folder.log.append(review.review_events("state")[:40])
    folder.log.close()  # as the kernel does with a dead process's files; nothing says that the run is whole
    shown = opened(served(open_run(folder.path)).url)
    assert shown.text("status") == "ended without a word"
    shown.move(7)
    assert shown.errors == []
