"""The kvlab command: what it prints, its exit codes, and that it says mistakes without a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvlab
from kvlab.cli import EXIT_ERROR, EXIT_INTERRUPTED, main
from kvlab.config import CACHE_VARIABLE, CI_VARIABLE, DEBUG_VARIABLE, RUNS_VARIABLE, is_set
from kvlab.engine import embedded
from kvlab.store.runs import list_runs, new_run_folder

COMMANDS = ("demo", "run", "inspect", "model", "runs", "bench", "worker")


def kvlab_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvlab", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_help_names_every_command() -> None:
    done = kvlab_command("--help")
    assert done.returncode == 0
    assert all(f"\n    {command} " in done.stdout for command in COMMANDS)


@pytest.mark.parametrize(
    "command", [*((c,) for c in COMMANDS), ("model", "show"), ("runs", "rm"), ("bench", "engine"), ("bench", "handoff")]
)
def test_each_command_has_its_help(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([*command, "--help"])
    assert raised.value.code == 0
    assert f"usage: kvlab {' '.join(command)}" in capsys.readouterr().out


def test_version() -> None:
    done = kvlab_command("--version")
    assert (done.returncode, done.stdout) == (0, f"kvlab {kvlab.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["demo", "--workers", "0"], ["run"], ["run", "x", "--flow", "y"]]
)
def test_a_command_that_cannot_be_meant_is_refused_with_its_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == EXIT_ERROR
    assert capsys.readouterr().err.startswith("usage: kvlab")


def test_a_mistake_is_one_message_and_a_hint_without_traceback() -> None:
    done = kvlab_command("model", "show", "./nowhere", **{DEBUG_VARIABLE: ""})
    assert (done.returncode, done.stdout) == (EXIT_ERROR, "")
    assert done.stderr.splitlines()[0] == "kvlab: there is no folder nowhere"
    assert done.stderr.splitlines()[1].startswith("  Try: ")
    assert "\x1b" not in done.stderr


def test_debugging_shows_the_traceback_too() -> None:
    done = kvlab_command("model", "show", "./nowhere", **{DEBUG_VARIABLE: "1"})
    assert done.returncode == EXIT_ERROR
    assert "Traceback" in done.stderr
    assert "\nkvlab: there is no folder nowhere\n" in done.stderr


@pytest.mark.parametrize("command", ["demo", "run review"])
def test_a_context_file_that_is_not_there_is_noticed_first(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--context", "nowhere.txt"]) == EXIT_ERROR
    assert "there is no file nowhere.txt" in capsys.readouterr().err


@pytest.fixture
def mute_index() -> Iterator[str]:
    """Address of a package index that takes calls and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def test_ctrl_c_ends_quietly_and_leaves_nothing(mute_index: str, tmp_path: Path) -> None:
    environment = {CACHE_VARIABLE: str(tmp_path / "cache"), "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": mute_index}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "kvlab", "model", "fetch"],
        stderr=subprocess.PIPE,
        text=True,
        env=kept | environment,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Downloading")
    # A terminal sends it to the whole group, pip included.
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait() == EXIT_INTERRUPTED
    assert "Traceback" not in rest
    assert [path for path in (tmp_path / "cache" / "models").iterdir() if path.suffix != ".lock"] == []


def test_a_reader_that_has_enough_is_no_error(tiny_model_dir: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvlab", "model", "show", tiny_model_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 0)


def test_a_model_is_shown_by_its_folder(tiny_model_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "show", tiny_model_dir]) == 0
    shown = capsys.readouterr().out
    assert "768 bytes a token in float32 (3 layers, 2 KV heads of 16)" in shown


@pytest.mark.model
def test_the_embedded_model_is_shown_with_its_license(capsys: pytest.CaptureFixture[str]) -> None:
    if not embedded.is_ready():
        (pytest.fail if is_set(CI_VARIABLE) else pytest.skip)("needs the embedded model: kvlab model fetch")
    assert main(["model", "fetch"]) == 0
    assert capsys.readouterr().out == f"{embedded.model_folder()}\n"
    assert main(["model", "show"]) == 0
    shown = capsys.readouterr().out
    assert "Apache-2.0" in shown
    assert embedded.NAME in shown


# Runs


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two recorded runs, the only ones."""
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path / "runs"))
    for name in ("review", "debate"):
        new_run_folder(name).complete()
    return tmp_path / "runs"


def test_no_runs_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path / "none"))
    assert main(["runs", "ls"]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'none'}\n"


def test_runs_are_listed_measured_and_removed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = sorted(path.name for path in runs.iterdir())
    assert main(["runs", "ls"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in listed] == [first, second]

    assert main(["runs", "size"]) == 0
    nbytes = sum(run.size for run in list_runs())
    assert capsys.readouterr().out.startswith(f"{nbytes:,} bytes in 2 runs in ")

    assert main(["runs", "rm", first]) == 0
    assert f"removed {runs / first}: " in capsys.readouterr().out
    assert [path.name for path in runs.iterdir()] == [second]


def test_one_wrong_name_removes_no_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(runs.iterdir())
    assert main(["runs", "rm", before[0].name, "nonsense"]) == EXIT_ERROR
    assert "nonsense" in capsys.readouterr().err
    assert sorted(runs.iterdir()) == before


def test_a_run_is_described(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = min(path.name for path in runs.iterdir())
    assert main(["inspect", name]) == 0
    assert name in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path)]) == EXIT_ERROR
    assert tmp_path.name in capsys.readouterr().err


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:8786", "tcp://host", "tcp://host:99999", ""])
def test_a_worker_wants_the_whole_address_of_a_scheduler(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", address, "--model-path", "/nowhere"]) == 2
    assert "is not the address of a scheduler" in capsys.readouterr().err


def test_a_workflow_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flow.yaml").write_bytes(b"\xff\xfe\x00name: x")
    assert main(["run", str(tmp_path / "flow.yaml")]) == 2
    assert "not UTF-8 text" in capsys.readouterr().err


def test_a_context_for_a_file_that_has_its_own_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flow.py").write_text("import kvlab\nwf = kvlab.Workflow('w')\n")
    (tmp_path / "text.txt").write_text("A text.")
    told = ["run", str(tmp_path / "flow.py"), "--context", str(tmp_path / "text.txt")]
    assert main(told) == 2
    assert "defines its own workflow" in capsys.readouterr().err


@pytest.mark.parametrize(
    "told",
    [
        ["bench", "engine", "--out"],
        ["bench", "handoff", "--out"],
        ["bench", "inspector", "--out"],
        ["bench", "crossover", "--out"],
        ["demo", "--out"],
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main([*told, str(tmp_path / "file" / "below")]) == 2
    assert "cannot go to" in capsys.readouterr().err
