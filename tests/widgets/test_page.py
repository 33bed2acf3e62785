"""The exported page in a real browser, from a file: no request, no error, and the store's own figures at every moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.export import write_page

import kvlab
from kvlab.display.quantities import bytes_text, count_text, seconds_text
from kvlab.display.sentences import sentence
from kvlab.store.rows import events_of

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``page_of(run, **options)``: the exported file, written once."""
    written: dict[Any, Path] = {}

    def write(run: Any, **options: Any) -> Path:
        key = (run.path, *sorted(options.items()))
        if key not in written:
            written[key] = write_page(run, tmp_path_factory.mktemp("page") / "run.html", **options)
        return written[key]

    return write


@pytest.mark.parametrize("which", ["small", pytest.param("large", marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_it_opens_and_is_stepped_without_a_request_or_an_error(
    which: str, page: bool, request: Any, opened: Any, page_of: Any
) -> None:
    run = request.getfixturevalue(which)
    shown = opened(page_of(run, page=page))
    n = run.events.num_rows
    for k in (n, n // 2, n // 2 + 1, n // 2 - 30, 0, 1):
        shown.move(k)
        assert shown.text("position").startswith(count_text(k))
    assert shown.foreign() == []
    assert [url for url in shown.requests if url.startswith("http")] == []
    assert shown.errors == []


@pytest.mark.parametrize("which", ["small", pytest.param("large", marks=pytest.mark.slow)])
def test_tables_say_what_the_store_says_at_that_moment(which: str, request: Any, opened: Any, page_of: Any) -> None:
    run = request.getfixturevalue(which)
    shown = opened(page_of(run, page=True))
    n = run.events.num_rows
    told = [sentence(event) for _, event in events_of(run.events)]
    for k in (n, n // 3, 2 * n // 3, 0):
        world = run.at(k)
        shown.move(k)
        assert shown.text("now") == (told[k - 1] if k else "before the first event")
        made = [row for row in world.rows["states"] if row["operator"]][::-1][:300]
        assert [[row[0], row[4], row[6]] for row in shown.rows("graph")] == [
            [row["state"], count_text(row["n_tokens"]), bytes_text(row["nbytes"])] for row in made
        ]
        gone = {row["state"] for row in made if row["phase"] == "evicted"}
        assert {row[0] for row in shown.rows("graph") if row[9] == "evicted"} == gone
        placed = {row["worker"]: bytes_text(row["kv_bytes"]) for row in world.rows["workers"]}
        assert {row[0]: row[4] for row in shown.rows("memory") if row[4] != "–"} == {
            worker: size for worker, size in placed.items() if size != "0 B" or worker in _told(shown)
        }
        done = sorted((row for row in world.rows["edges"] if row["actual_seq"]), key=lambda row: -row["actual_seq"])[
            :300
        ]
        assert [row[:5] for row in shown.rows("quality")] == [
            [row["edge"], row["chosen"], row["actual_how"], seconds_text(row["predicted_seconds"]),
             seconds_text(row["actual_seconds"])]
            for row in done
        ]  # fmt: skip
        finished = [row for row in world.rows["operators"] if row["finished_ns"] and row["started_ns"]]
        assert len(shown.rows("timeline")) == min(300, len(finished))


def _told(shown: Any) -> set[str]:
    return {row[0] for row in shown.rows("memory") if row[4] != "–"}


def test_the_decision_is_the_stores(small: Any, opened: Any, page_of: Any) -> None:
    import json

    shown = opened(page_of(small, page=True))
    for row in small.tables["edges"].to_pylist():
        shown.move(row["actual_seq"])
        shown.root.evaluate("(root, edge) => root.kvlab.select(root.kvlab.store.nodeOf.get(edge))", row["target"])
        shown.move(small.events.num_rows)
        shown.page.wait_for_selector(f'[data-edge="{row["edge"]}"]')
        cells = shown.rows("decision")
        alternatives = json.loads(row["alternatives"])
        assert len(cells) == len(alternatives) + 1
        chosen = next(cell for cell in cells if cell[0].endswith("✓"))
        assert chosen[0] == f"{row['chosen']} ✓"
        assert chosen[1] == row["worker"]
        assert chosen[2] == seconds_text(row["predicted_seconds"])
        assert cells[-1][0] == f"did {row['actual_how']}"
        assert cells[-1][2] == seconds_text(row["actual_seconds"])
        excluded = {cell[-1] for cell in cells if cell[2] == "–"}
        assert excluded == {a["excluded"] for a in alternatives if a["excluded"]}
        shown.page.locator('[data-kv="table-decision"]').click()


def test_keys_move_the_cursor_and_stay_in_the_inspector(small: Any, opened: Any, page_of: Any) -> None:
    shown = opened(page_of(small, page=True))
    n = small.events.num_rows
    kinds = [str(event.kind) for _, event in events_of(small.events)]
    shown.page.evaluate(
        "() => { window.leaked = []; document.addEventListener('keydown', e => window.leaked.push(e.key)) }"
    )
    shown.root.focus()
    keyboard = shown.page.keyboard

    def at() -> int:
        return int(shown.root.get_attribute("data-kv-k"))

    keyboard.press("Home")
    assert at() == 0
    keyboard.press("ArrowRight")
    keyboard.press("ArrowRight")
    keyboard.press("ArrowLeft")
    assert at() == 1
    keyboard.press("]")
    assert kinds[at() - 1] == "decision"
    assert at() == kinds.index("decision") + 1
    keyboard.press("Shift+ArrowRight")
    assert at() == kinds.index("turn.finished") + 1
    keyboard.press("[")
    assert at() == kinds.index("decision") + 1
    keyboard.press("End")
    assert at() == n
    keyboard.press("?")
    assert shown.page.locator('[data-kv="keys"]').is_visible()
    keyboard.press("Escape")
    assert shown.page.locator('[data-kv="keys"]').is_hidden()
    keyboard.press("/")
    keyboard.type("s2")
    keyboard.press("Enter")
    assert shown.root.get_attribute("data-kv-selected") == "s2"
    assert shown.page.evaluate("() => window.leaked") == []


def test_a_step_is_an_event_an_operation_a_turn_or_a_decision(small: Any, opened: Any, page_of: Any) -> None:
    shown = opened(page_of(small, page=False))
    kinds = [str(event.kind) for _, event in events_of(small.events)]
    for unit, wanted in (
        ("event", set(kinds)),
        ("operation", {"action.started", "action.finished", "action.failed"}),
        ("turn", {"turn.finished"}),
        ("decision", {"decision"}),
    ):
        shown.page.locator('[data-kv="unit"]').select_option(unit)
        shown.move(0)
        met = []
        while (k := int(shown.root.get_attribute("data-kv-k"))) < len(kinds):
            met.append(k)
            shown.page.locator('[data-kv="forward"]').click()
        assert met[1:] == [k for k, kind in enumerate(kinds, 1) if kind in wanted and k < len(kinds)]


def test_play_goes_to_the_end_and_stops(small: Any, opened: Any, page_of: Any) -> None:
    shown = opened(page_of(small, page=False))
    n = small.events.num_rows
    shown.move(n - 4)
    shown.page.locator('[data-kv="play"]').click()
    shown.drawn(n)
    assert shown.page.locator('[data-kv="play"]').get_attribute("aria-label") == "Play"
    assert shown.text("status") == "run done"


def test_a_click_selects_a_state_and_escape_forgets_it(small: Any, opened: Any, page_of: Any) -> None:
    shown = opened(page_of(small, page=True))
    where = shown.root.evaluate(
        """root => { const c = root.kvlab, g = c.views[0], f = g.frame(), box = c.view(g.figure).el.getBoundingClientRect(),
           n = c.store.nodes, i = c.store.nodeOf.get("s3");
           return [box.x + f.x_scale.compute(n.x[i]), box.y + f.y_scale.compute(n.y[i])] }"""
    )
    shown.page.mouse.click(*where)
    assert shown.root.get_attribute("data-kv-selected") == "s3"
    shown.page.wait_for_selector('[data-state="s3"]')
    shown.root.focus()
    shown.page.keyboard.press("Escape")
    assert shown.root.get_attribute("data-kv-selected") == ""


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_the_theme_follows_the_system(scheme: str, small: Any, opened: Any, page_of: Any) -> None:
    shown = opened(page_of(small, page=True), color_scheme=scheme)
    assert shown.root.get_attribute("data-kv-theme") == scheme
    colour = shown.root.evaluate("root => getComputedStyle(root).backgroundColor")
    assert colour == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 20, 23)"}[scheme]
    shown.page.emulate_media(color_scheme={"light": "dark", "dark": "light"}[scheme])
    shown.page.wait_for_selector(f'[data-kv-theme="{"dark" if scheme == "light" else "light"}"]')


def test_everything_that_acts_has_a_name(large: Any, opened: Any, page_of: Any) -> None:
    shown = opened(page_of(large, page=False))
    nameless = shown.page.evaluate(
        """() => { const bad = []; const walk = root => { for (const e of root.querySelectorAll('*')) {
             if (e.shadowRoot) walk(e.shadowRoot);
             const named = e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.[0]?.textContent.trim();
             if (['BUTTON', 'INPUT', 'SELECT'].includes(e.tagName) && !named) bad.push(e.outerHTML);
             if (e.getAttribute('role') === 'img' && !e.getAttribute('aria-label')) bad.push(e.outerHTML) } };
             walk(document); return bad }"""
    )
    assert nameless == []
    pictures = shown.page.locator('[role="img"][aria-label]')
    assert pictures.count() >= 6


def test_a_narrow_window_of_many_states_shows_a_page_of_them_and_turns_it(
    large: Any, opened: Any, page_of: Any
) -> None:
    shown = opened(page_of(large, page=True))
    drawn = """root => { const l = root.kvlab.layers.find(l => l.table === 'marks');
                       return l.base.get_length() + l.fresh.get_length() }"""
    starts = set()
    for k in (large.events.num_rows, large.events.num_rows // 2, 100):
        shown.move(k)
        assert 0 < shown.root.evaluate(drawn) < 900
        starts.add(shown.root.evaluate("root => root.kvlab.views[0].figure.x_range.start"))
    assert len(starts) == 3


def test_names_and_texts_of_a_run_make_no_element(
    generate: Any, review: Any, tmp_path: Path, opened: Any, page_of: Any
) -> None:
    run = kvlab.open_run(generate.write_run(tmp_path, review.harmful_events()))
    shown = opened(page_of(run, page=True))
    n = run.events.num_rows
    for k in (0, n // 2, n):
        shown.move(k)
    for view in ("memory", "quality", "timeline"):
        shown.rows(view)
    assert any("onerror" in cell for row in shown.rows("graph") for cell in row), "it is shown, as text"
    assert shown.page.locator("img[src=x]").count() == 0  # looks into shadow roots too
    assert shown.page.evaluate("window.hit") is None
    assert shown.errors == []


def test_one_moment_is_one_picture_however_it_was_reached(large: Any, opened: Any, page_of: Any) -> None:
    """What is in a figure's base lies under all that is in its twins: were a layer elsewhere, it would hide others."""
    shown = opened(page_of(large, page=True))
    n = large.events.num_rows
    for steps in ((n,), (0, n), (0, n // 2, n), (n - 40, n), (0, 150, 170), (170, 150, 171)):
        for k in steps:
            shown.move(k)
        told = shown.root.evaluate("root => root.kvlab.layers.map(layer => [layer.view, layer.drawn, layer.now])")
        assert all(now == steps[-1] for _, _, now in told)
        for view in {view for view, _, _ in told}:
            assert len({drawn for name, drawn, _ in told if name == view}) == 1, (view, steps)
