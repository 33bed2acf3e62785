from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvlab.display.describe import describe, run_line
from kvlab.display.sentences import sentence
from kvlab.store.events import Event, Kind
from kvlab.store.fold import World, fold
from kvlab.store.runs import list_runs, new_run_folder, open_run


def test_a_run_as_text_has_all_its_parts(tmp_path: Path, review: ModuleType) -> None:
    folder = new_run_folder("review", root=tmp_path)
    folder.log.append(review.review_events("state"))
    folder.complete()
    shown = describe(open_run(folder.path)).replace("\u202f", " ")
    for part in ("Agents", "Decisions", "States", "Memory", "Last events"):
        assert f"\n{part}\n" in shown
    assert "review stateflow, done in" in shown
    assert "◆ s4 reviewer-3  1 168 tokens = 1 096 shared + 72 own  resident on w1" in shown
    assert "s3 reviewer-2" in shown
    assert "evicted" in shown
    assert "w0 did not send" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_every_earlier_moment_can_be_described(review: ModuleType) -> None:
    events = review.review_events("state")
    world = World.empty()
    for event in events:
        describe(world.apply(event))


def test_markup_in_texts_is_shown_as_it_is(review: ModuleType) -> None:
    note = Event(Kind.NOTE, 0, "c", 0, detail={"text": "[bold]x[/bold] [/nonsense]", "level": "warning"})
    assert "[bold]x[/bold] [/nonsense]" in describe(fold([*review.review_events("state"), note]))


def test_a_run_that_a_process_still_writes_says_so(tmp_path: Path, review: ModuleType) -> None:
    folder = new_run_folder("review", root=tmp_path)
    folder.log.append(review.review_events("state")[:30])
    folder.log.flush()
    line = run_line(open_run(folder.path))
    assert "running" in line
    assert line.endswith(", still being written")
    folder.complete()
    assert "written" not in run_line(open_run(folder.path))


def test_a_run_whose_process_was_killed_is_interrupted(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from kvlab.store.events import Event, Kind; from kvlab.store.runs import new_run_folder;"
        "folder = new_run_folder('review', root=sys.argv[1]); detail = {'name': 'review', 'flow': 'state'};"
        "folder.log.append([Event(Kind.RUN_STARTED, 1, 'lab', 0, detail=detail)]); folder.log.flush();"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    (run,) = list_runs(tmp_path)
    assert "interrupted" in run_line(run)
    assert "left unfinished by its process" in describe(run)
    assert not run.being_written


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_event_has_its_sentence(kind: Kind, review: ModuleType) -> None:
    assert sentence(Event(kind, 0, "c", 0))
    told = [sentence(event) for event in review.review_events("state") if event.kind is kind]
    assert all(told)
    assert not any("None" in one for one in told)
