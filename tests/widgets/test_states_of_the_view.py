"""What is shown where there is less than a whole run to see, and that each says what to do."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.export import rows_html
from kvlab_widgets.packing import as_json
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


@pytest.mark.parametrize("page", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["page", "cell"])
def test_a_run_without_events_says_where_others_are(page: bool, shown_as: Any) -> None:
    shown = shown_as([], page=page)
    assert shown.text("notice").startswith("This run has no events.")
    assert "kvlab runs ls" in shown.text("notice")
    assert shown.text("instead-decision") == "This run handed no state on."
    for key in ("ArrowRight", "ArrowLeft", "Home", "End", " ", "]"):
        shown.root.press(key)
    assert shown.errors == []


SEEN = """root => { const c = root.kvlab, found = {};
  for (const view of c.views) for (const model of view.body) {
    const element = c.view(model)?.el;
    if (model.type === "Figure" && element.getBoundingClientRect().width)
      (found[view.name] ??= []).push(getComputedStyle(element).visibility);
  }
  return found }"""
"""By view, which of its figures are to be seen."""


@pytest.mark.parametrize("flow", ["none", *(pytest.param(flow, marks=pytest.mark.slow) for flow in ("state", "text"))])
def test_a_view_of_nothing_has_a_sentence_and_no_axes(flow: str, shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events(flow) if flow != "none" else [])
    shown.move(0)
    views = ("graph", "timeline", "decision", "memory", "lineage", "quality")
    assert {name: set(seen) for name, seen in shown.root.evaluate(SEEN).items()} == {name: {"hidden"} for name in views}
    for view in views:
        assert shown.text(f"instead-{view}").endswith(".")
    if flow == "none":
        return
    shown.page.locator('[data-kv="instead-timeline"] button').click()
    shown.page.locator('[data-kv="instead-timeline"]').wait_for(state="hidden")
    shown.move(shown.root.evaluate("root => root.kvlab.store.n"))
    seen = shown.root.evaluate(SEEN)
    assert set(seen["graph"] + seen["timeline"]) == {"visible"}
    if flow == "text":
        assert "In textflow" in shown.text("instead-decision")
    else:
        assert set(seen["memory"] + seen["quality"] + seen["lineage"]) == {"visible"}
    # A table stands for the sentence, too, and gives way to it again.
    shown.move(0)
    button = shown.page.locator('[data-kv="table-memory"]')
    for hidden in (True, False):
        button.click()
        shown.drawn(0)
        assert shown.page.locator('[data-kv="instead-memory"]').is_hidden() is hidden


def test_what_comes_after_the_cursor_is_shown_in_no_view_of_time(shown_as: Any, review: Any) -> None:
    shown = shown_as(review.review_events("state"))
    n = shown.root.evaluate("root => root.kvlab.store.n")
    for k in (n // 3, n // 2, n):
        shown.move(k)
        told = shown.root.evaluate(
            """root => { const of = name => root.kvlab.views.find(view => view.name === name);
              const axis = ({ x_range: x }) => [x.start, x.end];
              const m = of("memory"), t = of("timeline");
              return [m.veil.left, m.cursor.location, t.cursor.location, axis(m.total), axis(t.figure)] }"""
        )
        assert told[0] == told[1] == told[2]
        assert told[3] == told[4], "one axis of time"


@pytest.mark.parametrize("height", [800, pytest.param(1080, marks=pytest.mark.slow)])
@pytest.mark.parametrize("status", [pytest.param("done", marks=pytest.mark.slow), "failed"])
def test_a_notice_pushes_nothing_off_and_the_lower_row_begins_in_the_window(
    height: int, status: str, shown_as: Any, review: Any
) -> None:
    events = review.review_events("state")
    last = events[-1]
    events[-1] = Event(last.kind, last.time_ns, last.source, last.source_seq, detail={"status": status, "error": "x"})
    shown = shown_as(events, viewport={"width": 1280 if height == 800 else 1920, "height": height})
    assert shown.page.locator('[data-kv="notice"]').count() == (status == "failed")
    shown.page.wait_for_timeout(300)
    tops = shown.root.evaluate(
        """root => { const c = root.kvlab, head = name => c.views.find(view => view.name === name).head;
          const top = name => c.view(head(name)).el.getBoundingClientRect().top;
          return [top("lineage"), top("quality"), top("events"), root.getBoundingClientRect().bottom] }"""
    )
    assert len(set(tops[:3])) == 1
    if height == 800:
        rows = 3 if status == "done" else 1
        assert tops[0] + 24 + rows * 18 <= height, "headings and first rows"
    else:
        assert tops[3] <= height + 1, "all of it"


def test_in_a_cell_a_notice_takes_its_room_from_the_charts(shown_as: Any, review: Any) -> None:
    events = review.review_events("state")
    heights = []
    for status in ("done", "failed"):
        last = events[-1]
        events[-1] = Event(
            last.kind, last.time_ns, last.source, last.source_seq, detail={"status": status, "error": "x"}
        )
        shown = shown_as(events, page=False, viewport={"width": 1130, "height": 670})
        shown.page.wait_for_timeout(300)
        heights.append(shown.root.evaluate("root => root.getBoundingClientRect().height"))
    assert heights[1] == pytest.approx(heights[0], abs=1)


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
    "width", [640, *(pytest.param(width, marks=pytest.mark.slow) for width in (900, 1130, 1280, 1920))]
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


def test_who_stands_at_the_end_stands_there_also_before_what_arrived_is_drawn(shown_as: Any, review: Any) -> None:
    """What is told in between decides where the copy opens that is made when the run is over."""
    events = review.review_events("state")
    shown = shown_as(events[:40], live=True)
    rows = fed(events[:40])
    rows.take()
    rows.feed(events[40:])
    arrives = """async (root, batch) => {
        const c = root.kvlab, found = [];
        const look = () => found.push([c.k, c.atEnd, c.bar.ui("status").textContent]);
        await new Promise(done => setTimeout(done, 500));
        c.heard(batch); c.bar.show(); c.remember(); look();
        c.moveTo(39); look();
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))); look();
        return [c.store.n, ...found];
    }"""
    n, first, moved, drawn = shown.root.evaluate(arrives, json.loads(as_json(rows.take())))
    assert n == len(events)
    assert first == [40, True, "run done"]
    assert moved[:2] == [39, False]
    assert drawn[:2] == [39, False]
    assert moved[2] == drawn[2] == f"{n - 39} ahead"


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
