"""What is shown while something takes long: lines for a log, bars for a terminal, nothing when silent."""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvlab.progress import SILENT, Face, Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_at_the_start_at_milestones_and_at_the_end() -> None:
    stream = io.StringIO()
    with Progress(stream=stream).task("Fetching", total=100, unit="tokens") as task:
        for _ in range(10):
            task.advance(10)
    *lines, last = stream.getvalue().splitlines()
    assert lines == [
        "Fetching …",
        "Fetching: 30 of 100 tokens",
        "Fetching: 50 of 100 tokens",
        "Fetching: 80 of 100 tokens",
    ]
    assert re.fullmatch(r"Fetching: done in \d+\.\d s", last)


def test_bytes_are_shown_as_megabytes() -> None:
    stream = io.StringIO()
    with Progress(stream=stream).task("Fetching", total=93e6, unit="B") as task:
        task.reach(50e6)
    assert "Fetching: 50 of 93 MB\n" in stream.getvalue()


def test_a_failure_is_not_called_done() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyError), Progress(stream=stream).task("Loading"):
        raise KeyError
    assert "stopped after" in stream.getvalue()
    assert "done" not in stream.getvalue()


def test_a_terminal_gets_bars_that_go_away_and_a_line_that_stays() -> None:
    stream = Terminal()
    progress = Progress(stream=stream)
    with progress.task("Loading", total=4, unit="files") as outer:
        outer.advance()
        with progress.task("Reading"):
            progress.say("a word between")
        outer.reach(4)
    shown = stream.getvalue()
    assert "\x1b[" in shown
    assert re.search(r"\d of 4 files", shown)
    assert "a word between" in shown
    assert re.search(r"Loading: done in \d+\.\d s\s*$", shown)
    with progress.task("Again"):
        pass
    assert "Again: done" in stream.getvalue()


@pytest.mark.parametrize("face", ["bars", "lines", "nothing"])
def test_threads_may_show_tasks_at_once(face: Face) -> None:
    stream = io.StringIO()
    progress = Progress(face, stream)

    def work(number: int) -> int:
        with progress.task(f"Part {number}", total=20) as task:
            for _ in range(20):
                task.advance()
        return number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == list(range(40))
    done = set(re.findall(r"Part (\d+): done", stream.getvalue()))
    assert len(done) == (0 if face == "nothing" else 40)


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with SILENT.task("Loading", total=2) as task:
        task.advance()
        SILENT.say("word")
    assert capsys.readouterr() == ("", "")


def test_a_cell_keeps_one_output_a_task_and_its_last_line() -> None:
    pytest.importorskip("ipykernel")
    import nbclient
    import nbformat

    source = (
        "import time\nfrom kvlab import progress\n"
        "with progress.task('Loading <model>', total=4, unit='files') as task:\n"
        "    for _ in range(4):\n        time.sleep(0.25)\n        task.advance()\n"
        "    progress.say('between')"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    seen: list[str] = []
    client = nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3")
    with client.setup_kernel():
        process = client.process_message

        def watch(message, cell, index):
            seen.append(str(message["content"].get("data", {}).get("text/html", "")))
            return process(message, cell, index)

        client.process_message = watch
        client.execute_cell(notebook.cells[0], 0)
    assert any('<progress value="2" max="4">' in html and "2 of 4 files" in html for html in seen)
    shown, printed = notebook.cells[0].outputs
    assert re.fullmatch(r"<div>Loading &lt;model&gt;: done in \d\.\d s</div>", shown["data"]["text/html"])
    assert re.fullmatch(r"Loading <model>: done in \d\.\d s", shown["data"]["text/plain"])
    assert printed["text"] == "between\n"
