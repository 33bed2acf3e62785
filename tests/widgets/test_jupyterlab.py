"""The inspector in a real JupyterLab: a run is stepped, overridden and looked back at while cells are busy; reload, restart."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
INSPECTOR = '[data-kv="inspector"]'
BAR = ".kvlab-run"
HERE_ONLY = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")

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
RECORDED_BUSY = "threading.Thread(target=write).start(); time.sleep(8)"
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
BUSY = """
began = time.monotonic()
while not run.over and time.monotonic() < began + 120:
    time.sleep(0.1)
time.sleep(15)
"""
EDGES = 'print(*[(e["target"], e["actual_how"], e["worker"], e["policy"]) for e in run.tables["edges"].to_pylist()], sep="\\n")'


class Book:
    """A notebook in JupyterLab, open in a tab of its own, its kernel idle."""

    def __init__(self, browser: Any, base: str, home: Path, name: str, cells: list[str]) -> None:
        import nbformat

        book = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        )
        nbformat.write(book, home / f"{name}.ipynb")
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"{base}/lab/workspaces/{name}/tree/{name}.ipynb")
        self.idle()

    def js(self, code: str, arg: Any = None) -> Any:
        """What ``code``, a function of (notebook panel, arg), returns."""
        return self.page.evaluate(f"arg => (({code})(jupyterapp.shell.currentWidget, arg))", arg)

    def wait(self, code: str, arg: Any = None, seconds: float = 60) -> None:
        """Until ``code``, a function of (notebook panel, arg), is true."""
        told = (
            f"arg => {{ const panel = window.jupyterapp?.shell?.currentWidget; return panel && ({code})(panel, arg) }}"
        )
        self.page.wait_for_function(told, arg=arg, timeout=seconds * 1e3)

    def idle(self) -> None:
        """Until the kernel has nothing to do."""
        self.wait("panel => panel.sessionContext?.session?.kernel?.status === 'idle'", seconds=90)

    @property
    def busy(self) -> bool:
        """Whether a cell runs."""
        return bool(self.js("panel => panel.content.widgets.some(cell => cell.model.executionState === 'running')"))

    def run(self, *indices: int, wait: bool = True) -> None:
        """Run cells, and wait until each is done."""
        for index in indices:
            run = """(panel, i) => { panel.content.activeCellIndex = i; panel.content.deselectAll();
                     jupyterapp.commands.execute('notebook:run-cell'); return 1 }"""
            done = """(panel, i) => { const model = panel.content.widgets[i].model;
                      return model.executionState === 'idle' && model.executionCount }"""
            begun = """(panel, i) => panel.content.widgets[i].model.executionState === 'running'"""
            self.js(run, index)
            self.wait(done if wait else begun, index)

    def printed(self, index: int) -> str:
        """What a cell has printed."""
        return str(
            self.js(
                "(panel, i) => panel.content.widgets[i].model.outputs.toJSON().map(o => o.text ?? '').join('')", index
            )
        )

    def frame(self) -> Any:
        """The static copy, once it is there and ready."""
        frame = self.page.frame_locator('iframe[title="kvlab inspector"]')
        frame.locator(f'{INSPECTOR}[data-kv-ready="1"]').wait_for(timeout=30_000)
        return frame

    def inspector(self, nth: int = 0) -> Inspected:
        """The live inspector, once it is ready."""
        return Inspected(self, nth)

    def bar(self, name: str) -> Any:
        """A part of the run's buttons."""
        part = self.page.locator(f"{BAR}-{name}")
        return part.locator("select") if name in ("speed", "until", "roads") else part

    def pending(self, text: str, seconds: float = 30) -> str:
        """What the run's bar says, once it contains ``text``."""
        told = self.page.locator(f"{BAR} [data-kv=run-status]", has_text=text)
        told.wait_for(timeout=seconds * 1e3)
        return str(told.inner_text())

    @property
    def foreign(self) -> list[str]:
        """Requests that left this machine."""
        return [url for url in self.requests if not url.startswith(HERE_ONLY)]


class Inspected:
    """A live inspector in a notebook. Panel's shadow roots hide it from ``document.querySelector``."""

    def __init__(self, book: Book, nth: int) -> None:
        self.book = book
        self.root = book.page.locator(f'{INSPECTOR}[data-kv-ready="1"]').nth(nth)
        self.root.wait_for(timeout=30_000)

    def js(self, code: str) -> Any:
        """What ``code``, a function of the client, returns."""
        return self.root.evaluate(f"root => ({code})(root.kvlab)")

    def until(self, code: str, seconds: float = 30) -> None:
        """Until ``code``, a function of the client, is true."""
        end = time.monotonic() + seconds
        while not self.js(code):
            assert time.monotonic() < end, (code, self.seen)
            self.book.page.wait_for_timeout(50)

    def says(self, name: str) -> str:
        """Text of the element ``data-kv=name``."""
        return str(self.root.locator(f'[data-kv="{name}"]').first.inner_text())

    @property
    def seen(self) -> dict[str, Any]:
        """Where it is."""
        told = "c => ({k: c.k, n: c.store.n, selected: c.root.dataset.kvSelected ?? ''})"
        return dict(self.js(told))


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a JupyterLab of its own home."""
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = os.pathsep.join(str(path) for path in (HERE.parents[1], HERE.parents[1] / "widgets"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_")}
    environment |= {"HOME": str(home), "PYTHONPATH": where, "JUPYTER_PLATFORM_DIRS": "0"}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=",
        "--ServerApp.port_retries=0", f"--ServerApp.root_dir={home}", "--LabApp.expose_app_in_browser=True",
        "--allow-root", "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=log)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{base}/api", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (home / "log").read_text()
                time.sleep(0.2)
        yield base, home
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def book(jupyter: tuple[str, Path], browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Book]]:
    """``book(*cells)``: a notebook, open. At the end nothing may have left this machine, and nothing may have gone wrong."""
    base, home = jupyter
    made: list[Book] = []

    def show(*cells: str) -> Book:
        made.append(Book(browser, base, home, f"{request.node.name}-{time.time_ns()}", list(cells)))
        return made[-1]

    yield show
    for one in made:
        shutdown = "async panel => { await panel.sessionContext.shutdown(); return 1 }"
        one.js(shutdown)
        one.context.close()
        assert one.foreign == []
        assert one.errors == []


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
    live.until("c => c.store.n > 80")  # rows arrive in a busy cell
    assert shown.busy
    shown.idle()

    # Python knows where the person is once the mirror has been sent, which waits for quiet; then messages keep their order.
    live.root.focus()
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("ArrowRight")
    live.until("c => c.told.mirror.data.k[0] === c.k && !c.told.mirror.data.live[0]")
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
    live.until("c => c.told.mirror.data.live[0]")
    shown.page.keyboard.press("r")
    assert shown.frame().locator('[data-kv="status"]').inner_text() == "run done, stepped"


def test_a_reload_comes_back_where_it_was_and_is_live_again(book: Any, lab_cell: str) -> None:
    shown = book(lab_cell, HELD, SHOWN)
    shown.run(0, 1, 2)
    live = shown.inspector()
    shown.pending("next: prefill of")
    shown.bar("step").click()
    shown.pending("next: first")
    live.until("c => c.store.nodes.id.length === 1")
    live.js("c => { c.select(0); c.moveTo(c.store.nodes.born[0] + 1); return 1 }")
    live.until("c => c.told.mirror.data.k[0] === c.k")
    was = live.seen
    assert was["selected"]
    shown.js("async panel => { await panel.context.save(); return 1 }")
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
    shown.page.evaluate(
        "async () => { await jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'}) }"
    )
    live.until("c => c.root.dataset.kvTheme === 'dark'")
    shown.pending("next: prefill of")
    shown.page.evaluate(
        "async () => { await jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'}) }"
    )
    live.until("c => c.root.dataset.kvTheme === 'light'")
