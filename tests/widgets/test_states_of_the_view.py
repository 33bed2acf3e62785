"""What is shown where there is less than a whole run to see, and that each says what to do."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.export import rows_html
from kvlab_widgets.rows import RunRows

from kvlab.store.events import Event, Kind

pytestmark = pytest.mark.browser


def fed(events: list[Event]) -> RunRows:
    rows = RunRows()
    rows.feed(events)
    return rows


@pytest.fixture
def shown_as(opened: Any, tmp_path: Path) -> Any:
    """``shown_as(events, live=False)``: the exported page of a run that had these events."""

    def show(events: list[Event], *, live: bool = False, page: bool = True, **context: Any) -> Any:
        path = tmp_path / "run.html"
        path.write_text(rows_html(fed(events), theme="auto", page=page, live=live), encoding="utf-8")
        return opened(path, **context)

    return show


@pytest.mark.parametrize("page", [True, False], ids=["page", "cell"])
def test_a_run_without_events_says_where_others_are(page: bool, shown_as: Any) -> None:
    shown = shown_as([], page=page)
    assert shown.text("notice").startswith("This run has no events.")
    assert "kvlab runs ls" in shown.text("notice")
    assert shown.text("decision") == "no state was handed on yet"
    for key in ("ArrowRight", "ArrowLeft", "Home", "End", " ", "]"):
        shown.root.press(key)
    assert shown.errors == []


def test_before_the_first_event_it_waits_and_then_is_lost(shown_as: Any) -> None:
    shown = shown_as([], live=True)
    assert shown.text("notice").startswith("Waiting for the first event.")
    assert "run.play()" in shown.text("notice")
    shown.page.wait_for_selector('[data-kv="notice"] >> text=Disconnected', timeout=15_000)


@pytest.mark.slow
def test_a_silent_kernel_is_said_and_what_is_here_can_be_stepped(shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events("state")[:40], live=True)
    assert shown.page.locator('[data-kv="notice"]').count() == 0
    shown.page.wait_for_selector('[data-kv="notice"]', timeout=15_000)
    assert shown.text("notice").startswith("Disconnected at event 40.")
    shown.move(12)
    assert shown.text("position") == "12 / 40"
    assert shown.errors == []


def test_a_run_that_failed_says_why_and_leads_to_it(shown_as: Any, review: Any) -> None:
    events = review.review_events("state")[:60]
    last = events[-1]
    failure = {"action": "a-broken", "agent": "editor", "worker": "worker-0"}
    for kind, values in (
        (Kind.ACTION_FAILED, {**failure, "detail": {"op": "resume", "error": "no room for 2 MiB"}}),
        (Kind.RUN_FINISHED, {"detail": {"status": "failed", "error": "editor: no room for <b>2 MiB</b>"}}),
    ):
        events.append(Event(kind, last.time_ns, "conductor", 1000 + len(events), **values))
    shown = shown_as(events)
    assert shown.text("notice").startswith("The run failed: editor: no room for <b>2 MiB</b>.")
    shown.page.locator('[data-kv="failure"]').click()
    shown.drawn(61)
    assert "no room for 2 MiB" in shown.text("now")


def test_a_log_without_an_end_says_that_it_may_go_on(shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events("state")[:40])
    assert shown.text("notice").startswith("The run had not ended at event 40.")
    assert "kvlab inspect RUN --serve" in shown.text("notice")


def test_a_whole_run_says_nothing(shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events("state"))
    assert shown.page.locator('[data-kv="notice"]').count() == 0
    assert shown.root.get_attribute("data-kv-notice") == ""


def test_more_states_than_can_be_told_apart_are_said_to_be_a_part(shown_as: Any, generate: Any) -> None:
    shown = shown_as(generate.make_events(1200))
    shown.page.locator('[data-kv="table-graph"]').click()
    shown.page.wait_for_selector('[data-kv="rows-graph"] p')
    assert "300 of 1\u202f200 states" in shown.page.locator('[data-kv="rows-graph"] p').inner_text()


def test_less_motion_plays_slower_and_nothing_is_animated(shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events("state"), reduced_motion="reduce")
    assert shown.page.locator('[data-kv="speed"]').input_value() == "2"
    assert shown.root.evaluate("root => root.kvlab.speed") == 2
    moving = """() => { const found = []; const walk = root => { for (const e of root.querySelectorAll('*')) {
      if (e.shadowRoot) walk(e.shadowRoot);
      const s = getComputedStyle(e);
      if (e.closest('.kv') && (parseFloat(s.transitionDuration) > 0 || s.animationName !== 'none')) found.push(e.outerHTML) } };
      walk(document); return found }"""
    assert shown.page.evaluate(moving) == []


@pytest.mark.parametrize(
    "width", [1920, *(pytest.param(width, marks=pytest.mark.slow) for width in (1280, 1130, 900)), 640]
)
def test_the_bar_neither_wraps_nor_clips(width: int, shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events("state"), page=False, viewport={"width": width, "height": 800})
    shown.move(30)  # a sentence and "ahead" in the bar
    boxes = shown.page.locator(".kv .bar").evaluate(
        """bar => { const box = e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] };
           return { bar: box(bar), parts: [...bar.children].filter(e => !e.hidden && e.getClientRects().length).map(box) } }"""
    )
    left, top, right, bottom = boxes["bar"]
    assert len(boxes["parts"]) >= 8
    for x0, y0, x1, y1 in boxes["parts"]:
        assert left - 1 <= x0 <= x1 <= right + 1
        assert top - 1 <= y0 <= y1 <= bottom + 1
    ends = sorted((box[0], box[2]) for box in boxes["parts"])
    assert all(before[1] <= after[0] + 1 for before, after in itertools.pairwise(ends))


def test_a_question_that_is_asked_again_is_sent_again(shown_as: Any, review: Any) -> None:
    """Bokeh keeps what is equal to itself: an answer that was lost would never be asked for again."""
    shown = shown_as(review.review_events("state")[:40], live=True)
    asked = """async root => {
        const { mirror } = root.kvlab.told.channel, heard = [];
        mirror.properties.data.change.connect(() => heard.push(mirror.data.ask[0]));
        await new Promise(done => setTimeout(done, 500));
        heard.length = 0;
        for (let i = 0; i < 3; i++) { root.kvlab.ask(); await new Promise(done => setTimeout(done, 250)); }
        return heard;
    }"""
    heard = shown.root.evaluate(asked)
    assert len(heard) == len(set(heard)) == 3
    assert all(heard)
