"""Run folders: made apart, opened without model or cluster, any earlier moment, listed, removed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvlab.errors import InvalidInput, RunUnreadable
from kvlab.store.events import Event
from kvlab.store.fold import fold
from kvlab.store.runs import list_runs, new_run_folder, open_run, remove_run, runs_root

NOON = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVLAB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def make(events: list[Event], name: str = "review", *, complete: bool = True) -> Path:
    folder = new_run_folder(name, lambda: NOON)
    folder.write_config({"command": "test"})
    folder.log.append(events)
    folder.log.flush()
    if complete:
        folder.complete()
    return folder.path


def test_a_root_that_cannot_be_written_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    for wrong in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/kvlab")):
        monkeypatch.setenv("KVLAB_RUNS", str(wrong))
        with pytest.raises(InvalidInput, match=r"runs cannot go to .*/") as caught:
            new_run_folder("review")
        assert "KVLAB_RUNS" in caught.value.hint


def test_the_root_is_the_variable_or_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLAB_RUNS", "/somewhere")
    assert runs_root() == Path("/somewhere")
    monkeypatch.delenv("KVLAB_RUNS")
    assert runs_root() == Path("runs")


def test_folders_are_their_owners_alone(tmp_path: Path) -> None:
    run = new_run_folder("private", root=tmp_path / "runs")
    folders = [run.path, run.path.parent, *(inside for inside in run.path.rglob("*") if inside.is_dir())]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    run.complete()


def test_a_run_opens_and_says_what_it_is(events: list[Event]) -> None:
    run = open_run(make(events))
    assert (run.name, run.complete, run.events.num_rows) == ("review", True, len(events))
    assert run.tables["agents"].num_rows == 6
    assert run.config == {"command": "test"}
    assert run.size == sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert "review" in repr(run)
    assert "planner" in str(run)
    assert "planner" in run._repr_html_()


def test_any_earlier_moment_is_the_fold_of_its_events(events: list[Event]) -> None:
    run = open_run(make(events))
    for k in (0, 1, 37, len(events)):
        assert run.at(k).rows == fold(events[:k]).rows
    for k in (-1, len(events) + 1):
        with pytest.raises(InvalidInput, match="outside"):
            run.at(k)


def test_an_unknown_table_names_the_nearest(events: list[Event]) -> None:
    with pytest.raises(KeyError, match="'placements'"):
        open_run(make(events)).tables["placement"]


def test_a_run_being_written_is_readable_and_says_that_it_is_not_whole(events: list[Event]) -> None:
    folder = new_run_folder("live")
    folder.log.append(events[:10])
    folder.log.flush()
    run = open_run(folder.path)
    assert (run.complete, run.world.n_events, run.world.status) == (False, 10, "running")
    folder.log.append(events[10:])
    folder.complete()
    assert run.refresh().world.n_events == len(events)
    assert run.complete


def test_folders_of_one_second_and_name_are_apart_also_between_threads(root: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: new_run_folder("same", lambda: NOON).path, range(16)))
    assert len(set(paths)) == 16
    assert all(path.parent == root and "same" in path.name for path in paths)


@pytest.mark.parametrize(("name", "safe"), [("../../etc", "etc"), ("a b/c", "a-b-c"), ("", "run"), ("été", "été")])
def test_a_name_never_leaves_the_root(root: Path, name: str, safe: str) -> None:
    path = new_run_folder(name, lambda: NOON).path
    assert path.parent == root
    assert path.name.split("-", 4)[4] == safe


def test_runs_are_listed_oldest_first_and_found_by_name(root: Path, events: list[Event]) -> None:
    assert list_runs() == []
    first = make(events, "alpha")
    second = make(events, "beta", complete=False)
    (root / "not-a-run").mkdir()
    assert [run.path for run in list_runs()] == sorted([first, second])
    assert open_run(first.name).path == first


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunUnreadable):
        open_run(tmp_path)
    with pytest.raises(RunUnreadable):
        open_run("no-such-run")


def test_a_configuration_that_is_not_json_is_refused_and_the_old_one_kept(events: list[Event]) -> None:
    folder = new_run_folder("x")
    folder.write_config({"a": 1})
    with pytest.raises(InvalidInput, match="not JSON"):
        folder.write_config({"a": object()})
    folder.log.append(events)
    folder.complete()
    assert open_run(folder.path).config == {"a": 1}


def test_no_room_for_a_configuration_is_named_and_leaves_the_old_one(tmp_path: Path) -> None:
    """A real limit on the size of files, in a process of its own."""
    script = (
        "import resource, sys; from kvlab.store.runs import new_run_folder; from kvlab.errors import NoRoom\n"
        "folder = new_run_folder('x', root=sys.argv[1]); folder.write_config({'a': 1})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try: folder.write_config({'a': 'x' * 100_000})\n"
        "except NoRoom as error: print(error.data['path'], sorted(p.name for p in folder.path.iterdir()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "r")], capture_output=True, text=True, timeout=60, check=True
    )
    assert "run.json" in done.stdout
    assert "['events.arrows', 'logs', 'run.json']" in done.stdout


def test_a_damaged_configuration_is_named(events: list[Event]) -> None:
    path = make(events)
    (path / "run.json").write_text("{")
    with pytest.raises(RunUnreadable, match=r"run\.json is damaged"):
        _ = open_run(path).config


def test_remove_deletes_a_run_and_nothing_else(tmp_path: Path, events: list[Event]) -> None:
    path = make(events)
    other = tmp_path / "precious"
    other.mkdir()
    (other / "file").write_text("x")
    with pytest.raises(InvalidInput, match="not a run folder"):
        remove_run(other)
    assert (other / "file").exists()
    nbytes = open_run(path).size
    assert remove_run(path) == nbytes
    assert not path.exists()


def test_a_run_still_written_is_not_removed() -> None:
    folder = new_run_folder("live")
    with pytest.raises(InvalidInput, match="still being written"):
        remove_run(folder.path)
    folder.complete()
    remove_run(folder.path)


def test_opening_needs_neither_torch_nor_dask(events: list[Event]) -> None:
    script = (
        "import sys; from kvlab.store.runs import open_run; run = open_run(sys.argv[1]);"
        "str(run), run._repr_html_(), run.tables['edges'];"
        "assert not {'torch', 'distributed', 'dask', 'transformers', 'panel', 'bokeh'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(make(events))], check=True, timeout=60)
