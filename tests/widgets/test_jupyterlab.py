"""The inspector in a real JupyterLab: a run is stepped, overridden and looked back at while cells are busy; reload, restart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
BAR = ".kvlab-run"

RECORDED = f"""
import sys, threading, time
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent / "store")!r}]
import kvlab, kvlab_widgets, review_run
from kvlab.store.runs import new_run_folder
events = review_run.review_events("state")
folder = new_run_folder("live", root="runs")
folder.log.append(events[:40]); folder.log.flush()
def write():
    for start in range(40, 120, 4):
        time.sleep(0.15)
        folder.log.append(events[start:start + 4]); folder.log.flush()
"""
RECORDED_SHOWN = "kvlab_widgets.inspect(kvlab.open_run(folder.path))"
BUSY = """
try:
    time.sleep(200)
except KeyboardInterrupt:
    pass
"""
RECORDED_BUSY = f"threading.Thread(target=write).start(){BUSY}"
RECORDED_END = "folder.log.append(events[120:]); folder.complete()"

LAB = """
import kvlab, time
from kvlab.progress import Progress
lab = kvlab.Lab(model={model!r}, same_host="frames", kv_budget="1 GiB", progress=Progress("nothing"))
wf = kvlab.Workflow("stepped")
paper = wf.context("paper", "What was prefilled once need not be prefilled again. " * 10)
first = wf.agent("first", [paper, "Begin."], max_new_tokens=4)
wf.agent("second", [paper, first, "Go on."], max_new_tokens=4)
"""
HELD = "run = lab.run(wf, min_shared_tokens=8, paused=True)"
SHOWN = "run.inspect()"
LATE = """
const later = window.setTimeout;
window.setTimeout = (act, ms, ...args) => later(act, ms === 100 ? 2500 : ms, ...args);
"""
"""JupyterLab looks every 100 ms, for two seconds, whether a widget's model has come; here it comes between the last two."""
EDGES = 'print(*[(e["target"], e["actual_how"], e["worker"], e["policy"]) for e in run.tables["edges"].to_pylist()], sep="\\n")'


@pytest.fixture
def lab_cell(tiny_model_dir: str) -> str:
    """Source of a cell that opens a lab on a tiny model."""
    return LAB.format(model=tiny_model_dir)


def test_a_run_of_another_process_in_a_cell(book: Any) -> None:
    shown = book(RECORDED, RECORDED_SHOWN, RECORDED_BUSY, RECORDED_END)
    shown.run(0, 1)
    live = shown.inspector()
    assert live.says("status") == "live, read only"
    assert "another process" in live.root.locator('[data-kv="status"]').get_attribute("title")
    assert shown.page.locator(BAR).count() == 0
    live.until("c => c.store.n === 40")

    shown.run(2, wait=False)
    live.until("c => c.store.n > 100")  # rows arrive in a busy cell
    assert shown.busy
    shown.interrupt()
    shown.idle()

    # Python knows where the person is once the browser has said so, which waits for quiet; then messages keep their order.
    live.root.focus()
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("ArrowRight")
    live.until("c => c.said.k === c.k && !c.said.live")
    shown.run(3)
    # The copy begins where the person was: at the second moment.
    assert shown.frame().locator('[data-kv="status"]').inner_text().endswith("ahead")


def test_a_run_is_stepped_overridden_and_run_on_while_a_cell_is_busy(book: Any, lab_cell: str) -> None:
    shown = book(lab_cell, HELD, SHOWN, BUSY, EDGES)
    shown.run(0, 1, 2)
    live = shown.inspector()
    assert shown.pending("next: prefill of") == "next: prefill of context:paper"
    shown.run(3, wait=False)

    shown.bar("step").click()
    assert "by" in shown.pending("next: first")
    live.until("c => c.store.nodes.id.length === 1")

    shown.bar("until").select_option(label="to second")
    shown.bar("run").click()
    before = shown.pending("next: second")
    assert shown.bar("step").is_enabled()
    roads = shown.bar("roads")
    chosen = roads.evaluate("select => select.options[select.selectedIndex].text")
    other = next(text for text in roads.locator("option").all_inner_texts() if "recompute" in text and text != chosen)
    roads.select_option(label=other)
    worker = re.search(r"on\s(\S+),", other)[1]  # ipywidgets writes spaces that do not break
    after = shown.pending(f"by recompute of first → {worker}") if "first →" in before else shown.pending("by recompute")
    assert after != before
    assert shown.busy

    shown.bar("until").select_option(label="to the end")
    shown.bar("run").click()
    frame = shown.frame()
    assert shown.busy  # all of that happened in a busy cell
    assert frame.locator('[data-kv="status"]').inner_text() == "run done, stepped"
    assert shown.page.locator(BAR).count() == 0
    shown.interrupt()
    shown.idle()
    shown.run(4)
    assert f"('second', 'recompute', '{worker}', 'forced')" in shown.printed(4)


def test_keys_reach_the_run_and_none_reaches_jupyterlab(book: Any, lab_cell: str) -> None:
    shown = book(lab_cell, HELD, SHOWN, "run.cancel()")
    shown.run(0, 1, 2)
    live = shown.inspector()
    shown.pending("next: prefill of")
    n_cells = "panel => panel.content.widgets.length"
    before = shown.js(n_cells)
    live.root.focus()
    shown.page.keyboard.press("n")
    shown.pending("next: first")
    keys = ("Home", "ArrowRight", "ArrowRight", "a", "b", "d", "d", "x", "m", "z", "Shift+ArrowLeft", "End", "]", "[")
    for key in keys:
        shown.page.keyboard.press(key)
    assert shown.js(n_cells) == before  # none of them was JupyterLab's
    shown.bar("step").click()
    for key in ("a", "b", "d", "d", "x", "m"):
        shown.page.keyboard.press(key)
    assert shown.js(n_cells) == before
    assert shown.js("panel => panel.content.widgets[2].model.type") == "code"
    live.root.focus()
    shown.page.keyboard.press("End")
    live.until("c => c.said.live")
    shown.page.keyboard.press("r")
    assert shown.frame().locator('[data-kv="status"]').inner_text() == "run done, stepped"


@pytest.mark.parametrize("browser_is", ["quick", "slow"])
def test_a_reload_comes_back_where_it_was_and_is_live_again(book: Any, lab_cell: str, browser_is: str) -> None:
    shown = book(lab_cell, HELD, SHOWN)
    shown.run(0, 1, 2)
    live = shown.inspector()
    shown.pending("next: prefill of")
    shown.bar("step").click()
    shown.pending("next: first")
    live.until("c => c.store.nodes.id.length === 1")
    live.js("c => { c.select(0); c.moveTo(c.store.nodes.born[0] + 1); return 1 }")
    live.until("c => c.said.k === c.k")
    was = live.seen
    assert was["selected"]
    shown.js("async panel => { await panel.context.save(); return 1 }")
    if browser_is == "slow":
        shown.page.add_init_script(LATE)
    shown.page.reload()
    shown.idle()

    live = shown.inspector()
    live.until(f"c => c.store.n >= {was['n']}")
    live.until(f"c => c.k === {was['k']} && c.root.dataset.kvSelected === {json.dumps(was['selected'])}")
    shown.pending("next: first")
    shown.bar("step").click()  # the buttons are the kernel's, so they work again, and so does what comes from it
    shown.pending("next: second")
    live.until("c => c.store.nodes.id.length === 2")
    assert live.seen["k"] == was["k"]


def test_a_kernel_that_is_gone_leaves_a_picture_that_can_be_stepped(book: Any, lab_cell: str) -> None:
    shown = book(lab_cell, HELD, SHOWN)
    shown.run(0, 1, 2)
    live = shown.inspector()
    shown.pending("next: prefill of")
    shown.bar("step").click()
    shown.pending("next: first")
    live.until("c => c.store.nodes.id.length === 1")
    shown.js("async panel => { await panel.sessionContext.restartKernel(); return 1 }")
    shown.idle()
    live.until("c => c.lost", 30)
    held = live.seen["n"]
    assert live.says("status") == f"disconnected, at event {held}"
    live.root.focus()
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("ArrowRight")
    live.until("c => c.k === 1 && c.root.dataset.kvDrawn === '1'")
    assert live.says("now").startswith("run stepped started")
    # A reload shows what the notebook kept, which can be stepped, too.
    shown.js("async panel => { await panel.context.save(); return 1 }")
    shown.page.reload()
    shown.idle()
    live = shown.inspector()
    live.until("c => c.lost", 30)
    live.root.focus()
    shown.page.keyboard.press("End")
    live.until("c => c.k === c.store.n && c.k > 0")


def test_verbs_appear_as_they_happen_in_several_inspectors(book: Any, lab_cell: str) -> None:
    verbs = """
s = lab.materialize("A text that several continuations share. " * 4, name="doc")
a, b = s.fork(2)
g = a.resume("The first way", max_new_tokens=4)
g.state.transfer(lab_workers[1])
"""
    more = "s.pin(); t = b.truncate(8); b.evict(); kvlab.merge([s, a]); time.sleep(2)"
    shown = book(lab_cell + "\nlab_workers = sorted(lab.workers)", "lab.inspect()", verbs, "lab.inspect()", more)
    shown.run(0, 1)
    early = shown.inspector()
    assert early.says("now") == "worker worker-1 joined on " + early.says("now").rpartition(" ")[2]
    shown.run(2)
    early.until("c => c.store.nodes.id.length === 4")
    assert early.js("c => c.store.nodes.operator") == ["materialize", "fork", "fork", "resume"]
    shown.run(3)
    late = shown.inspector(1)
    late.until("c => c.store.nodes.id.length === 4")
    shown.run(4, wait=False)
    for one in (early, late):
        one.until("c => c.store.nodes.operator.includes('merge')")
        one.until("c => c.store.events.text.some(text => text.endsWith('is pinned'))")
        one.until("c => c.store.events.text.some(text => text.endsWith('is evicted'))")
    assert shown.busy
    assert early.js("c => c.store.events.text") == late.js("c => c.store.events.text")


def test_it_wears_jupyterlabs_dark_theme(book: Any, lab_cell: str) -> None:
    shown = book(lab_cell, HELD, SHOWN)
    shown.run(0, 1, 2)
    live = shown.inspector()
    assert live.root.get_attribute("data-kv-theme") == "light"
    shown.wear("JupyterLab Dark")
    live.until("c => c.root.dataset.kvTheme === 'dark'")
    shown.pending("next: prefill of")
    shown.wear("JupyterLab Light")
    live.until("c => c.root.dataset.kvTheme === 'light'")
