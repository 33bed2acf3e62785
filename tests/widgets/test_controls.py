"""The buttons of a run act on it, show what is pending, and choose another road; handlers wait for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.controls import Controls, controls

import kvlab
from kvlab.progress import Progress

TEXT = "What was prefilled once need not be prefilled again. " * 10


@pytest.fixture(scope="module")
def lab(tiny_model_dir: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kvlab.Lab]:
    """Two workers that send each other frames."""
    import kvlab.runtime.calibration as calibration

    folder = tmp_path_factory.mktemp("kvlab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVLAB_RUNS", str(folder / "runs"))
        patch.setattr(calibration, "cache_dir", lambda: folder / "cache")
        with kvlab.Lab(
            model=tiny_model_dir, same_host="frames", kv_budget="1 GiB", progress=Progress("nothing")
        ) as made:
            yield made


@pytest.fixture
def held(lab: kvlab.Lab) -> Iterator[Any]:
    """A paused run of <b>first</b> and second."""
    wf = kvlab.Workflow("controlled")
    paper = wf.context("paper", TEXT)
    first = wf.agent("<b>first</b>", [paper, "Begin."], max_new_tokens=4)
    wf.agent("second", [paper, first, "Go on."], max_new_tokens=4)
    run = lab.run(wf, min_shared_tokens=8, paused=True)
    yield run
    run.cancel()
    run.settle(20)


def part(bar: Controls, name: str) -> Any:
    """The widget of class ``kvlab-run-NAME``."""
    rows = [row for row in bar.box.children if hasattr(row, "children")]
    return next(one for row in rows for one in row.children if f"kvlab-run-{name}" in one._dom_classes)


def until(bar: Controls, true: Callable[[], bool], seconds: float = 20) -> None:
    """Refresh the bar until it is as wanted."""
    end = time.monotonic() + seconds
    bar.refresh()
    while not true():
        assert time.monotonic() < end, part(bar, "told").value
        time.sleep(0.02)
        bar.refresh()


def test_the_bar_steps_overrides_and_runs_on(held: Any) -> None:
    bar = Controls(held)
    told, roads = part(bar, "told"), part(bar, "roads")
    until(bar, lambda: "next: prefill of context:paper" in told.value)
    assert roads.layout.display == "none"  # nothing to choose: there is no state yet
    part(bar, "step").click()
    until(bar, lambda: "next: &lt;b&gt;first&lt;/b&gt;, by" in told.value)  # escaped
    part(bar, "until").value = "second"
    part(bar, "run").click()
    until(bar, lambda: "next: second" in told.value)
    assert roads.value == (held.pending.decision.chosen.how, held.pending.decision.chosen.worker)
    wanted = next(value for _, value in roads.options if value[0] == "recompute" and value != roads.value)
    roads.value = wanted
    until(bar, lambda: "by recompute" in told.value and roads.value == wanted)
    part(bar, "until").value = ""
    part(bar, "run").click()
    until(bar, lambda: "run done, stepped by a person" in told.value)
    edge = next(e for e in held.tables["edges"].to_pylist() if e["target"] == "second")
    assert (edge["actual_how"], edge["worker"], edge["policy"]) == (*wanted, "forced")
    assert all(part(bar, name).disabled for name in ("step", "run", "pause", "cancel"))


def test_pause_between_two_actions_and_cancel(held: Any) -> None:
    bar = Controls(held)
    until(bar, lambda: held.pending is not None)
    part(bar, "speed").value = 1 / 3
    part(bar, "run").click()
    until(bar, lambda: not part(bar, "pause").disabled)
    part(bar, "pause").click()
    until(bar, lambda: held.status == "paused" and held.pending is not None)
    began = time.monotonic()
    part(bar, "cancel").click()
    assert time.monotonic() - began < 1
    until(bar, lambda: "run cancelled" in part(bar, "told").value)


def test_what_cannot_be_done_is_said_and_not_raised(held: Any) -> None:
    bar = Controls(held)
    until(bar, lambda: held.pending is not None)
    bar._act(lambda: held.choose("transfer"))
    assert "no state edge is pending" in part(bar, "told").value
    assert 'data-kv-status="failed"' in part(bar, "told").value


def test_breakpoints_are_named_by_what_they_are(held: Any) -> None:
    options = dict(part(Controls(held), "until").options)
    assert options["to second"] == "second"
    assert options["to any resume"] == "resume"
    assert options["to what starts on context:paper"] == "context:paper→"
    assert next(iter(options)) == "to the end"


def test_a_run_of_another_process_has_no_buttons(held: Any, tmp_path: Path) -> None:
    assert controls(kvlab.open_run(held.path)) is None
    assert controls(held) is not None
