"""The event log: whole batches only, mapped, followed, refused when newer, safe when the disk is full."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from kvlab.errors import InvalidInput, RunUnreadable
from kvlab.store import schema
from kvlab.store.events import Event, Kind
from kvlab.store.log import FLUSH_EVENTS, FLUSH_SECONDS, EventLog, LogTail, read_log
from kvlab.store.rows import events_of


def note(number: int, text: str = "x") -> Event:
    return Event(Kind.NOTE, 1000 + number, "test", number, detail={"text": f"{text}{number}", "level": "info"})


def written(path: Path, events: list[Event], batch: int = 4) -> Path:
    with EventLog(path) as log:
        for start in range(0, len(events), batch):
            log.append(events[start : start + batch])
            log.flush()
    return path


def test_every_event_comes_back_equal_and_numbered(tmp_path: Path, events: list[Event]) -> None:
    table = read_log(written(tmp_path / "e.arrows", events))
    assert table.schema.equals(schema.EVENTS, check_metadata=True)
    assert list(events_of(table)) == list(enumerate(events, 1))


def test_another_program_reads_it_as_an_ordinary_arrow_stream(tmp_path: Path, events: list[Event]) -> None:
    path = written(tmp_path / "e.arrows", events)
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        assert reader.read_all().num_rows == len(events)


def test_opening_allocates_nothing_and_every_column_lies_in_the_file(tmp_path: Path, events: list[Event]) -> None:
    path = written(tmp_path / "e.arrows", events, batch=30)
    before = pa.total_allocated_bytes()
    table = read_log(path)
    assert pa.total_allocated_bytes() == before
    mapped = _mapping_of(path)
    addresses = [
        (buffer.address, buffer.address + buffer.size)
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None and buffer.size
    ]
    assert len(addresses) > len(table.columns)
    assert all(low <= start and end <= high for start, end in addresses for low, high in [mapped])


def _mapping_of(path: Path) -> tuple[int, int]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            low, high = line.split()[0].split("-")
            return int(low, 16), int(high, 16)
    raise AssertionError(f"{path} is not mapped")


def test_cut_off_at_any_byte_it_opens_up_to_its_last_whole_batch(tmp_path: Path) -> None:
    events = [note(number) for number in range(9)]
    log = EventLog(tmp_path / "e.arrows")
    ends = [log._length]
    for start in range(0, 9, 3):
        log.append(events[start : start + 3])
        log.flush()
        ends.append(log._length)
    log.close()
    whole = (tmp_path / "e.arrows").read_bytes()
    cut = tmp_path / "cut.arrows"
    for length in range(len(whole) + 1):
        cut.write_bytes(whole[:length])
        if length < ends[0]:
            with pytest.raises(RunUnreadable, match="before its schema"):
                read_log(cut)
            continue
        batches = sum(end <= length for end in ends[1:])
        table = read_log(cut)
        assert table.num_rows == 3 * batches, length
        if length in ends:
            assert [event for _, event in events_of(table)] == events[: 3 * batches]


def test_a_tail_of_zeros_left_by_a_power_cut_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "e.arrows", [note(1), note(2)])
    path.write_bytes(path.read_bytes()[:-8] + bytes(4096))
    assert read_log(path).num_rows == 2


def test_a_flipped_byte_anywhere_never_reads_foreign_memory(tmp_path: Path) -> None:
    """Every byte of a small log in turn, in a process of its own, since the fault to fear would end it."""
    path = written(tmp_path / "e.arrows", [note(number) for number in range(2)])
    script = (
        "import sys, pathlib; from kvlab.errors import RunUnreadable; from kvlab.store.log import read_log\n"
        "from kvlab.store.rows import events_of\n"
        "whole = pathlib.Path(sys.argv[1]).read_bytes(); other = pathlib.Path(sys.argv[1] + '.x'); outcomes = set()\n"
        "for at in range(len(whole)):\n"
        "    other.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1:])\n"
        "    try: outcomes.add(len(list(events_of(read_log(other)))))\n"
        "    except RunUnreadable: outcomes.add('refused')\n"
        "print(sorted(map(str, outcomes)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "refused" in done.stdout


def test_a_batch_that_claims_more_rows_than_it_has_is_refused(tmp_path: Path) -> None:
    """In a process of its own: believed, the claim would be followed terabytes beyond the file."""
    path = written(tmp_path / "e.arrows", [note(number) for number in range(2)])
    script = (
        "import sys, pathlib, struct; from kvlab.errors import RunUnreadable; from kvlab.store.log import read_log\n"
        "path = pathlib.Path(sys.argv[1]); whole = path.read_bytes(); refused = 0\n"
        "for at in range(0, len(whole) - 7, 4):\n"
        "    if whole[at:at + 8] == struct.pack('<q', 2):\n"
        "        path.write_bytes(whole[:at] + struct.pack('<q', 1 << 40) + whole[at + 8:])\n"
        "        try: read_log(path)\n"
        "        except RunUnreadable: refused += 1\n"
        "print(refused)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 0


def test_a_newer_format_is_refused_naming_both_versions(tmp_path: Path) -> None:
    newer = schema.EVENTS.with_metadata({schema.VERSION_KEY: b"7"})
    path = tmp_path / "e.arrows"
    path.write_bytes(newer.serialize().to_pybytes())
    with pytest.raises(RunUnreadable, match="version 7; this kvlab reads up to 1"):
        read_log(path)


@pytest.mark.parametrize("content", [b"", b"hello, I am not Arrow at all", bytes(64)])
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.arrows"
    path.write_bytes(content)
    with pytest.raises(RunUnreadable):
        read_log(path)


def test_an_arrow_stream_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.arrows"
    path.write_bytes(pa.schema([("a", pa.int64())]).serialize().to_pybytes())
    with pytest.raises(RunUnreadable, match="not a kvlab event log"):
        read_log(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunUnreadable, match="nowhere"):
        read_log(tmp_path / "nowhere")


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / "e.arrows", [note(1)])
    with pytest.raises(InvalidInput, match="exists"):
        EventLog(path)
    assert read_log(path).num_rows == 1


def test_events_wait_for_a_full_batch_or_a_tenth_of_a_second(tmp_path: Path) -> None:
    now = [0.0]
    log = EventLog(tmp_path / "e.arrows", clock=lambda: now[0])
    log.append([note(1)])
    assert read_log(log.path).num_rows == 0
    now[0] = 0.99 * FLUSH_SECONDS
    log.append([note(2)])
    assert read_log(log.path).num_rows == 0
    now[0] = FLUSH_SECONDS
    log.append([note(3)])
    assert read_log(log.path).num_rows == 3
    log.append([note(number) for number in range(FLUSH_EVENTS)])
    assert read_log(log.path).num_rows == 3 + FLUSH_EVENTS
    log.close()


def test_another_process_follows_a_live_log(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows", clock=lambda: 0.0)  # nothing grows old
    log.append([note(1), note(2), note(3)])
    log.flush()
    log.append([note(4), note(5)])
    log.flush()
    script = (
        "import sys; from kvlab.store.log import LogTail\ntail = LogTail(sys.argv[1])\n"
        "for _ in sys.stdin: print(tail.new()['seq'].to_pylist(), flush=True)"
    )
    command = [sys.executable, "-c", script, str(log.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:

        def new() -> list[int]:
            reader.stdin.write("\n")
            reader.stdin.flush()
            return list(json.loads(reader.stdout.readline()))

        assert new() == [1, 2, 3, 4, 5]
        assert new() == []
        log.append([note(6)])
        assert new() == []  # it waits for others
        log.flush()
        log.append([note(7), note(8)])
        log.flush()
        assert new() == [6, 7, 8]
        log.append([note(9)])
        log.close()
        assert new() == [9]
        assert new() == []
        reader.stdin.close()


def test_a_tail_takes_every_event_once_and_no_half_batch(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows")
    whole, cut = tmp_path / "e.arrows", tmp_path / "cut.arrows"
    ends = []
    for number in range(4):
        log.append([note(number), note(number)])
        log.flush()
        ends.append(whole.stat().st_size)
    content = whole.read_bytes()
    cut.write_bytes(content[: ends[0]])
    tail, seen = LogTail(cut), []
    for length in range(ends[0], len(content) + 1, 7):
        cut.write_bytes(content[:length])
        seen += [event for _, event in events_of(tail.new())]
        assert len(seen) == 2 * sum(length >= end for end in ends)
    cut.write_bytes(content)
    seen += [event for _, event in events_of(tail.new())]
    assert seen == [note(number) for number in range(4) for _ in range(2)]
    log.close()


def test_a_tail_of_a_damaged_log_says_so(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows")
    log.append([note(1)])
    log.flush()
    tail = LogTail(log.path)
    assert tail.new().num_rows == 1
    at = log.path.stat().st_size
    log.append([note(2)])
    log.flush()
    with log.path.open("r+b") as file:
        file.seek(at + 16)
        file.write(b"\xff" * 8)
    with pytest.raises(RunUnreadable):
        list(events_of(tail.new()))
    log.close()


def test_a_table_stays_valid_while_its_file_grows_and_goes(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows")
    log.append([note(1)])
    log.flush()
    table = read_log(log.path)
    log.append([note(2)])
    log.close()
    log.path.unlink()
    assert [event for _, event in events_of(table)] == [note(1)]


def test_threads_append_without_losing_or_mixing(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows")

    def write(source: str) -> None:
        for number in range(200):
            log.append([Event(Kind.NOTE, number, source, number), Event(Kind.NOTE, number, source, number + 1000)])

    threads = [threading.Thread(target=write, args=(f"t{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    table = read_log(log.path)
    assert table["seq"].to_pylist() == list(range(1, 1601))
    for index in range(4):
        mine = [event.source_seq for _, event in events_of(table) if event.source == f"t{index}"]
        assert mine == [value for number in range(200) for value in (number, number + 1000)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_a_detail_that_is_not_json_is_refused_and_nothing_of_the_call_is_taken(tmp_path: Path, value: object) -> None:
    log = EventLog(tmp_path / "e.arrows")
    with pytest.raises(InvalidInput, match=r"detail of a note event is not JSON"):
        log.append([note(1), Event(Kind.NOTE, 1, "test", 2, detail={"text": value})])
    assert log.append([note(3)]) == 1
    log.close()
    assert [event for _, event in events_of(read_log(log.path))] == [note(3)]


def test_a_field_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows")
    with pytest.raises(InvalidInput, match="'n_tokens'"):
        log.append([Event(Kind.TOKENS, 1, "test", 1, n_tokens="many")])  # type: ignore[arg-type]
    log.close()


def test_any_text_survives(tmp_path: Path) -> None:
    texts = ["grüße", "\ud800 alone", "\x00", "🙂", '"quoted"\n']
    path = written(tmp_path / "e.arrows", [note(number, text) for number, text in enumerate(texts)])
    assert [event.detail["text"] for _, event in events_of(read_log(path))] == [f"{t}{n}" for n, t in enumerate(texts)]


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e.arrows")
    log.close()
    log.close()
    with pytest.raises(InvalidInput, match="closed"):
        log.append([note(1)])


def test_a_full_disk_is_named_and_costs_nothing_that_was_written(tmp_path: Path) -> None:
    """A real limit on the file's size, in a process of its own; lifted, what waited is written."""
    script = Path(__file__).with_name("fill_disk.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "e.arrows")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert str(tmp_path / "e.arrows") in told["message"]
    assert told["rows_when_full"] == told["rows_before"] > 0
    assert told["whole_batches_only"]
    table = read_log(tmp_path / "e.arrows")
    assert table["seq"].to_pylist() == list(range(1, told["appended"] + 1))
