"""The decision of every kind in a real browser: what is told, what a slider does, and that neither is taken for the other."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kvlab_widgets.export import write_page
from kvlab_widgets.rows import DECISIONS, RunRows

import kvlab
from kvlab.display.decision_quality import decision_quality
from kvlab.display.quantities import seconds_text
from kvlab.display.report import write_report
from kvlab.store.fold import World, fold

CHART_SEEN = "return getComputedStyle(root.kvlab.view(view.figure).el).visibility === 'visible'"
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
INPUT = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', { bubbles: true })) }"


@pytest.fixture(scope="module")
def decided(generate: ModuleType, decided_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kvlab.open_run(generate.write_run(tmp_path_factory.mktemp("runs"), decided_run.decided_events()))


@pytest.fixture(scope="module")
def cases(decided_run: ModuleType) -> dict[str, Any]:
    return {case.name: case for case in decided_run.CASES}


@pytest.fixture(scope="module")
def files(decided: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("decided")
    return {page: write_page(decided, folder / f"{page}.html", page=page) for page in (True, False)}


class Seen:
    """An inspector whose decision is looked at."""

    def __init__(self, shown: Any, run: Any) -> None:
        self.shown, self.page = shown, shown.page
        self.edges = [row["edge"] for row in run.tables["edges"].to_pylist()]

    def look(self, name: str) -> None:
        """Show the decision of the case ``name``: the cursor goes to where all is known of it."""
        row, n = self.edges.index(f"paper→{name}"), len(self.edges)
        k = self.shown.root.evaluate(
            "(root, [row, n]) => row + 1 < n ? root.kvlab.store.decisions.born[row + 1] - 1 : root.kvlab.store.n",
            [row, n],
        )
        self.shown.move(k)
        self.page.wait_for_selector(f'[data-edge="paper→{name}"]')

    def text(self, name: str) -> str:
        found = self.page.locator(f'[data-kv="{name}"]')
        return str(found.inner_text()) if found.count() else ""

    def turn(self, name: str, step: int) -> None:
        self.page.locator(f'[data-kv="if-{name}"]').evaluate(INPUT, step)
        self.page.evaluate(TWO_FRAMES)

    def evaluate(self, code: str) -> Any:
        return self.shown.root.evaluate(
            f"root => {{ const view = root.kvlab.views.find(one => one.name === 'decision'); {code} }}"
        )

    @property
    def drawn(self) -> bool:
        return bool(self.evaluate("return view.curves.data.x.length > 0"))


@pytest.fixture(params=[True, False], ids=["page", "cell"])
def seen(request: Any, opened: Any, files: dict[bool, Path], decided: Any) -> Seen:
    size = {"width": 1920, "height": 1080} if request.param else {"width": 1280, "height": 800}
    return Seen(opened(files[request.param], viewport=size), decided)


@pytest.mark.browser
def test_every_kind_of_decision_says_why_and_is_cut_nowhere(seen: Seen, cases: dict[str, Any]) -> None:
    begins = dict.fromkeys(cases, "Moved, not recomputed: sending ") | {
        "reader": "Used where it lies: using it on w0 takes",
        "mapped": "Mapped, not copied: mapping it on w1",
        "short": "Recomputed, not moved: prefilling 30 tokens again on w1",
        "halved": "Part moved, part recomputed: sending ",
        "gone": "Recomputed, for no worker holds the whole state: prefilling ",
        "forced": "Forced by hand. Recomputed, not moved: ",
    }
    for case in cases.values():
        seen.look(case.name)
        chosen = case.decided().chosen
        why = seen.text("why")
        assert why.startswith(begins[case.name])
        assert seconds_text(float(f"{chosen.seconds:.6g}")) in why
        # Nothing of it scrolls, and no word ends in dots.
        assert seen.page.locator('[data-kv="decision"]').evaluate("box => box.scrollHeight <= box.clientHeight + 1"), (
            case
        )
        assert seen.page.locator('[data-kv="decision"]').evaluate("box => box.scrollWidth <= box.clientWidth + 1"), case
    assert seen.shown.errors == []
    assert seen.shown.foreign() == []


@pytest.mark.browser
def test_what_came_of_it_is_told(seen: Seen) -> None:
    seen.look("broken")
    assert "Planned transfer, did recompute" in seen.text("actual")
    assert "because w0 did not send segment a within 2 s" in seen.text("actual")
    seen.look("audited")
    assert "Audited: in place on w0 is faster, regret 55 %" in seen.text("actual")
    assert "0.31 s" in seen.text("decision")
    seen.look("moved")
    assert "(+8 %)" in seen.text("actual")
    seen.look("waiting")
    assert seen.text("actual") == ""
    assert "Not carried out yet." in seen.text("decision")
    seen.look("barred")
    assert "excluded because no room for 1 224 tokens in the KV budget of w1" in seen.text("decision")
    seen.shown.move(1)
    assert seen.text("decision") == ""
    assert seen.text("instead-decision").startswith("No state was handed on yet. The first time is at event ")
    seen.page.locator('[data-kv="instead-decision"] button').click()
    seen.page.wait_for_selector('[data-edge="paper→reader"]')


@pytest.mark.browser
def test_without_a_curve_one_sentence_stands_instead_of_axes(seen: Seen) -> None:
    sentences = {
        "reader": "nothing to move: all 1\u202f200 tokens are on w0 already",
        "gone": "nothing to move: no worker holds the whole state",
        "old": "no curve: this log does not tell what the decision saw",
    }
    for name, sentence in sentences.items():
        seen.look(name)
        assert seen.text("break-even").startswith(sentence)
        assert not seen.drawn
        assert not seen.evaluate(CHART_SEEN)
    seen.look("short")
    assert re.fullmatch(r"((map|transfer) = recompute at|break-even) \d+ tokens", seen.text("break-even"))
    assert seen.drawn
    assert seen.evaluate(CHART_SEEN)


@pytest.mark.browser
def test_the_dot_is_on_its_curve_and_labels_do_not_collide(seen: Seen, cases: dict[str, Any]) -> None:
    for name in ("moved", "short", "halved", "forced", "audited"):
        seen.look(name)
        case = cases[name]
        chosen = case.decided().chosen
        for axis in ("tokens", "bandwidth"):
            seen.page.locator(f'[data-kv="axis-{axis}"]').click()
            dots = seen.evaluate("return [...view.dots.data.x, ...view.dots.data.y]")
            assert dots[1] == pytest.approx(chosen.seconds, rel=1e-5)
            assert 10 ** dots[0] == pytest.approx(case.rate) if axis == "bandwidth" else dots[0] == case.n_tokens
            # In px of the figure: a line of the 11 px type apart.
            heights = seen.evaluate(
                "const { bbox } = view.client.frame(view.figure), { end } = view.figure.y_range; "
                "return view.ends.data.y.map(y => y / end * bbox.height).sort((a, b) => a - b)"
            )
            assert len(heights) >= 3
            assert all(after - before > 11 for before, after in itertools.pairwise(heights))


@pytest.mark.browser
def test_a_slider_redraws_what_would_be_and_reset_brings_the_record_back(seen: Seen, cases: dict[str, Any]) -> None:
    seen.look("moved")
    before, recorded = seen.text("decision"), seen.evaluate("return view.dots.data.y[0]")
    seen.turn("bandwidth", -50)
    other = replace(cases["moved"], rate=cases["moved"].rate / 32).decided().chosen
    assert seen.text("what-if").startswith("what if")
    assert f"{other.how} on {other.worker}" in seen.text("what-if")
    assert seconds_text(other.seconds) in seen.text("what-if")
    assert "Recorded: transfer on w1" in seen.text("decision")
    assert "predicted" not in seen.text("decision")
    assert seen.page.locator('[data-kv="decision"] tr.did').count() == 0
    slider = seen.page.locator('[data-kv="if-bandwidth"]')
    assert slider.get_attribute("aria-valuetext") == "11.9 MiB/s, what if"
    assert seen.text("against") == "what if"
    assert seen.page.locator('[data-kv="decision"]').evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    seen.page.locator('[data-kv="reset"]').click()
    seen.page.evaluate(TWO_FRAMES)
    assert seen.text("decision") == before
    assert seen.evaluate("return view.dots.data.y[0]") == pytest.approx(recorded)
    assert slider.get_attribute("aria-valuetext") == "381.5 MiB/s, as recorded"


@pytest.mark.browser
def test_what_if_moves_no_row_of_the_table(seen: Seen) -> None:
    top = "box => { const b = box.querySelector('tbody').getBoundingClientRect(); return [b.left, b.top] }"
    for name in ("moved", "short", "halved", "forced", "audited", "reader"):
        seen.look(name)
        before = seen.page.locator('[data-kv="decision"]').evaluate(top)
        for knob, step in (("prefill", -50), ("queue", 50), ("prefill", 50)):
            seen.turn(knob, step)
            assert seen.text("what-if")
            assert seen.page.locator('[data-kv="decision"]').evaluate(top) == before, (name, knob)
            assert seen.page.locator('[data-kv="decision"]').evaluate("box => box.scrollHeight <= box.clientHeight + 1")


@pytest.mark.browser
def test_a_slider_says_whose_queue_it_turns_and_every_step_of_it_changes_something(seen: Seen) -> None:
    texts = """label => { const input = label.querySelector("input"), output = label.querySelector("output"), told = [];
      for (let step = +input.min; step <= +input.max; step++) {
        input.value = step; input.dispatchEvent(new Event("input", { bubbles: true }));
        told.push([input.getAttribute("aria-valuetext"), output.scrollWidth <= output.clientWidth]);
      }
      return told }"""
    for name, worker, recorded in (("moved", "w1", 0.0), ("reader", "w0", 0.0), ("halved", "w1", 0.0)):
        seen.look(name)
        label = seen.page.locator('label:has([data-kv="if-queue"])')
        assert label.locator("span").inner_text() == f"queue, {worker}"
        assert label.locator("input").get_attribute("min") == "0", "0 s cannot become less"
        assert seen.text("is-queue") == seconds_text(recorded)
        for knob in seen.page.locator(".knobs label").all():
            told = knob.evaluate(texts)
            assert all(fits for _, fits in told), knob.inner_text()
            assert len({text for text, _ in told}) > 0.7 * len(told)


@pytest.mark.browser
def test_no_line_ends_inside_a_name_or_before_a_unit(seen: Seen) -> None:
    for name in ("moved", "halved", "broken", "barred"):
        seen.look(name)
        lines = """box => [...box.querySelectorAll(".whole")].map(one => one.getClientRects().length)"""
        assert set(seen.page.locator('[data-kv="decision"]').evaluate(lines)) == {1}


@pytest.mark.browser
def test_keys_on_a_slider_turn_it_and_do_not_move_the_cursor(seen: Seen) -> None:
    seen.look("moved")
    k = seen.shown.root.get_attribute("data-kv-k")
    slider = seen.page.locator('[data-kv="if-queue"]')
    slider.focus()
    seen.page.keyboard.press("ArrowRight")
    seen.page.evaluate(TWO_FRAMES)
    assert slider.input_value() == "1"
    assert "what if" in seen.text("what-if")
    assert seen.shown.root.get_attribute("data-kv-k") == k
    seen.page.keyboard.press("Escape")
    seen.page.keyboard.press("ArrowLeft")
    assert seen.shown.root.get_attribute("data-kv-k") == str(int(k or 0) - 1)


@pytest.mark.browser
def test_another_decision_forgets_what_was_turned(seen: Seen) -> None:
    seen.look("moved")
    seen.turn("prefill", 30)
    assert seen.text("what-if")
    seen.look("short")
    assert seen.text("what-if") == ""
    seen.look("moved")
    assert seen.text("what-if") == ""
    assert seen.page.locator('[data-kv="if-prefill"]').input_value() == "0"


@pytest.mark.browser
def test_quality_says_what_the_report_says_at_every_moment(
    opened: Any, files: dict[bool, Path], decided: Any, tmp_path: Path
) -> None:
    shown = opened(files[True])
    for k in (1, decided.events.num_rows // 3, decided.events.num_rows // 2, decided.events.num_rows):
        shown.move(k)
        world = decided.at(k)
        told = shown.page.locator('[data-kv="quality"]').evaluate(
            "box => Object.fromEntries([...box.querySelectorAll('dt')].map(dt => [dt.textContent, dt.nextSibling.textContent]))"
        )
        assert told == decision_quality(world).lines
    report = write_report(tmp_path / "report.html", [decided]).read_text(encoding="utf-8")
    for name, line in told.items():
        assert f'data-kv-quality="{name}">{name}: {line}.<' in report


def test_quality_counts_edges_tokens_and_misses(decided_run: ModuleType) -> None:
    found = decision_quality(fold(decided_run.decided_events()))
    done = [case for case in decided_run.CASES if case.carried_out]
    assert (found.n_done, found.n_kept) == (len(done), len(done) - 1)
    assert (found.n_audited, found.n_best) == (1, 0)
    assert found.regrets == (pytest.approx(0.55),)
    assert found.misses == {"prefix differs": 1, "evicted": 1, "recompute cheaper": 2, "policy": 1, "load failed": 1}
    assert found.n_reachable == sum(case.n_tokens for case in done) + 700
    lost = sum(case.n_tokens for case in done if case.name in ("short", "gone", "broken", "forced")) + 3000 // 2
    assert found.n_reused == sum(case.n_tokens for case in done) - lost
    assert decision_quality(World.empty()).lines == {"as planned": "0 of 0 edges"}


def test_the_timeline_has_what_was_decoded_moved_and_let_go(review: Any) -> None:
    rows = RunRows()
    rows.feed(events := review.review_events("state"))
    batch = rows.take()
    tables, workers = batch["tables"], batch["workers"]
    decoded = {agent: turn["decode_seconds"] for turn in rows.world.rows["turns"] for agent in [turn["agent"]]}
    decodes = tables["decodes"]
    assert len(decodes["born"]) == len(decoded)
    for worker, t0, t1, seconds in zip(decodes["worker"], decodes["t0"], decodes["t1"], decoded.values(), strict=True):
        assert t1 - t0 == pytest.approx(seconds, abs=1e-6)
        assert (worker, t1) in set(zip(tables["spans"]["worker"], tables["spans"]["t1"], strict=True))
    moves = tables["moves"]
    received = [event for event in events if event.kind == "segment.received"]
    assert [(workers[m], n) for m, n in zip(moves["worker"], moves["bytes"], strict=True)] == [
        (event.worker, event.nbytes) for event in received
    ]
    assert {workers[source] for source in moves["source"]} == {"w0"}
    assert {DECISIONS[how] for how in moves["how"]} == {"transfer"}
    assert len(tables["drops"]["born"]) == sum(event.kind == "segment.dropped" for event in events)
