"""The inspector's benchmark measures what it says, on this machine's browser; how fast is not asked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.bench import arriving, browser, run
from kvlab_widgets.bench.generated import make_events, write_run
from kvlab_widgets.bench.stepping import p95, steps
from kvlab_widgets.export import write_page

from kvlab.bench.summary import SCHEMA
from kvlab.errors import KVLabError, MissingExtra
from kvlab.progress import SILENT
from kvlab.store.saved import SavedRun

FIGURES = {
    "graph_step_ms_p95@page", "graph_step_ms_p95@lab", "all_step_ms_p95@page", "all_step_ms_p95@lab", "floor_ms_p95@page",
    "floor_ms_p95@lab", "worker_to_pixel_ms_p95@page", "worker_to_pixel_ms_p95@lab", "lost_events", "append_ms",
    "kernel_overhead_fraction", "view_mib", "html_mib", "html_open_s",
}  # fmt: skip


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_quick_run_has_every_figure(browser: Any, tmp_path: Path) -> None:
    # In a process of its own: Playwright drives one browser a thread.
    program = "import sys, pathlib, kvlab_widgets.bench as bench; bench.run(pathlib.Path(sys.argv[1]), quick=True)"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=500)
    record = json.loads((tmp_path / "summary.json").read_text())
    assert (record["schema"], record["experiment"]) == (SCHEMA, "inspector")
    metrics = record["metrics"]
    assert set(metrics) >= FIGURES
    assert any(name.startswith("layout_ms_") for name in metrics)
    assert {metric["kind"] for metric in metrics.values()} == {"measured"}
    assert metrics["lost_events"]["value"] == 0
    assert metrics["visible_states@page"]["value"] >= record["environment"]["sizes"]["page_states"]
    for where in ("page", "lab"):
        floor, graph, every = (
            metrics[f"{name}_ms_p95@{where}"]["value"] for name in ("floor", "graph_step", "all_step")
        )
        assert 0 < floor < every
        assert 0 < graph <= every
        assert metrics[f"worker_to_pixel_ms_p95@{where}"]["value"] > 25  # the reporter alone waits so long


@pytest.fixture
def few(tmp_path: Path, opened: Any) -> Any:
    """(a run of more states than a window holds, its page with the clocks in it)"""
    saved = SavedRun(write_run(tmp_path, make_events(1_000)))
    shown = opened(write_page(saved, tmp_path / "run.html"), viewport=browser.VIEWPORT)
    return saved, browser.Shown(shown.page)


@pytest.mark.browser
@pytest.mark.slow
def test_rows_that_are_missing_or_differ_are_lost(few: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, shown = few
    n = saved.events.num_rows
    assert arriving.lost(shown, n, saved.path) == 0
    monkeypatch.setattr(arriving, "WAIT_SECONDS", 0.5)
    longer = write_run(tmp_path, make_events(1_010))
    assert arriving.lost(shown, n, longer) >= SavedRun(longer).events.num_rows - n
    shown.root.evaluate("root => { root.kvlab.store.events.kind[7] = 0 }")
    assert arriving.lost(shown, n, saved.path) == 1
    with pytest.raises(KVLabError, match="were said"):
        arriving.lost(shown, n + 1, saved.path)


@pytest.mark.browser
@pytest.mark.slow
def test_a_slow_handler_is_seen_in_the_steps(few: Any) -> None:
    _, shown = few
    before = steps(shown, 1, 8, visible=10)
    assert 0 < before.graph[0] < before.all[0]
    shown.root.evaluate("""root => { const step = root.kvlab.step.bind(root.kvlab), wait = () => {
        for (const end = performance.now() + 150; performance.now() < end;); };
        root.kvlab.step = (...told) => { wait(); step(...told) } }""")
    slow = steps(shown, 1, 8, visible=10)
    assert slow.graph[0] > 150
    assert slow.floor[0] < 150
    with pytest.raises(KVLabError, match="states are in the window"):
        steps(shown, 1, 8, visible=1000)


@pytest.mark.browser
@pytest.mark.slow
def test_an_event_that_no_frame_shows_is_no_latency(few: Any) -> None:
    saved, shown = few
    n = saved.events.num_rows
    made = [time_ns / 1e6 for time_ns in saved.events["time_ns"].to_pylist()[-3:]]
    shown.root.evaluate("(root, [n, at]) => { root.kvBench.frames = [[n - 2, at + 40], [n, at + 90]] }", [n, made[-1]])
    wanted = [made[-1] + shown_after - one for one, shown_after in zip(made, (40, 90, 90), strict=True)]
    assert arriving.latencies(shown, saved.path, n - 3) == pytest.approx(wanted, abs=0.01)
    shown.root.evaluate("(root, n) => { root.kvBench.frames = [[n - 1, 1]] }", n)
    with pytest.raises(KVLabError, match=f"event {n} was never shown"):
        arriving.latencies(shown, saved.path, n - 3)


def test_the_95th_percentile_is_a_value_that_was_measured() -> None:
    assert p95(range(1, 101)) == 95
    assert p95([3.0]) == 3.0
    assert p95([1, 2, 3, 4, 5, 6, 7, 8, 9, 100]) == 100


def test_without_a_browser_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="no Chromium") as caught:
        run(tmp_path, quick=True, progress=SILENT)
    assert "apt-get install chromium" in caught.value.hint
    assert not (tmp_path / "summary.json").exists()


def test_without_playwright_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chromium = tmp_path / "chromium"
    chromium.touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(MissingExtra, match="playwright") as caught:
        run(tmp_path, quick=True, progress=SILENT)
    assert "pip install playwright" in caught.value.hint
