"""No room left, of any kind: an error that names it, the rest goes on, and with room again everything works."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kvlab
from kvlab.errors import NoRoom

PAGE = 4096
TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 3


def fill(disk: Path, leave: int) -> Path:
    """A file that takes what is free on a small disk but for ``leave`` bytes."""
    stat = os.statvfs(disk)
    free = stat.f_bavail * stat.f_frsize
    filler = disk / "filler"
    filler.write_bytes(b"\0" * (free - leave))
    return filler


# -- disk


def test_a_state_that_does_not_fit_on_the_disk_leaves_nothing_there(lab: Any, cold: Any, small_disk: Path) -> None:
    state = lab.materialize(TEXT + "disk").resume(" full", max_new_tokens=3).state
    filler = fill(small_disk, leave=state.nbytes // 2)
    with pytest.raises(NoRoom, match="bytes free") as caught:
        state.save(small_disk / "kept")
    assert caught.value.data["have"] < caught.value.data["need"]
    assert caught.value.hint
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    cold.require_right(lab, state.resume(" so", max_new_tokens=3))
    filler.unlink()
    loaded = lab.load(state.save(small_disk / "kept"))
    cold.require_right(lab, loaded.resume(" so", max_new_tokens=3))


def test_a_run_whose_record_finds_no_room_answers_and_says_what_is_missing(
    lab: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch, three_agents: Any, answers: Any
) -> None:
    whole = lab.run(three_agents()).wait()
    undisturbed = answers(whole)
    config, events = ((whole.path / name).stat().st_size for name in ("run.json", "events.arrows"))
    monkeypatch.setenv("KVLAB_RUNS", str(small_disk))
    # Room for its beginning, and not for its end.
    filler = fill(small_disk, leave=config + events // 2 + 2 * PAGE)
    run = lab.run(three_agents())
    with pytest.raises(NoRoom, match=r"events\.arrows") as caught:
        run.wait()
    assert caught.value.hint
    assert answers(run) == undisturbed
    assert not kvlab.open_run(run.path).complete  # what was written before is readable, and known to be cut off
    filler.unlink()
    again = lab.run(three_agents()).wait()
    assert answers(again) == undisturbed
    assert kvlab.open_run(again.path).complete


def test_a_run_that_cannot_even_begin_its_record_is_refused_and_leaves_nothing(
    lab: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch, three_agents: Any, faults: Any
) -> None:
    monkeypatch.setenv("KVLAB_RUNS", str(small_disk))
    used = faults.used_bytes(lab)
    for leave in (0, PAGE):
        filler = fill(small_disk, leave)
        with pytest.raises(NoRoom):
            lab.run(three_agents())
        assert [path.name for path in small_disk.iterdir()] == ["filler"], leave
        filler.unlink()
    assert faults.used_bytes(lab) == used
    lab.run(three_agents()).wait()


# -- memory budget


def test_a_full_budget_fails_what_does_not_fit_and_nothing_else(make_lab: Any, cold: Any) -> None:
    per_token = cold.engine.config.bytes_per_token
    with make_lab(kv_budget=300 * per_token, namespace="full") as lab:
        kept = lab.materialize("What is kept for good, whatever else is wanted. " * 6).pin()
        with pytest.raises(NoRoom, match="MiB are free") as caught:
            lab.materialize("Something else that is long. " * 24)
        assert f"{kept.id} " in str(caught.value)
        assert caught.value.hint
        assert caught.value.data["need_bytes"] > caught.value.data["free_bytes"] >= 0
        cold.require_right(lab, kept.resume(" so", max_new_tokens=3))
        # In one run: the agent that has no room fails by name, the other one answers.
        wf = kvlab.Workflow("full")
        wf.agent("small", "Say a word.", max_new_tokens=3)
        wf.agent("large", "Say a lot. " * 40, max_new_tokens=3)
        run = lab.run(wf)
        with pytest.raises(NoRoom, match="MiB are free"):
            run.wait()
        assert (run.state_of("small"), run.state_of("large")) == ("done", "failed")
        assert run["small"].token_ids
        assert lab.core.catalog.budget.used_bytes <= 300 * per_token
        assert kept.phase == "resident"
        kept.unpin()
        assert lab.materialize("Something else that is long. " * 5).phase == "resident"


# -- descriptors


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Inside the block the process gets no descriptor that it does not have."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir(f"/proc/{pid}/fd"))
    held = len(os.listdir(f"/proc/{pid}/fd"))
    # Numbers below the limit that are free can still be had: none is left when the limit is the lowest free one.
    lowest_free = next(number for number in range(highest + 2) if not Path(f"/proc/{pid}/fd/{number}").exists())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(lowest_free, held), hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_without_descriptors_says_so_and_the_others_go_on(lab: Any, cold: Any, faults: Any) -> None:
    state = lab.materialize(TEXT + "descriptors", worker="worker-0")
    cold.require_right(lab, state.resume(" so", max_new_tokens=3, worker="worker-1"))
    used = faults.used_bytes(lab)
    with no_descriptors(faults.pid_of(lab, "worker-1")):
        with pytest.raises(NoRoom, match="Too many open files") as caught:
            state.resume(" but", max_new_tokens=3, worker="worker-1")
        assert "ulimit -n" in caught.value.hint
        cold.require_right(lab, state.resume(" but", max_new_tokens=3, worker="worker-0"))
    cold.require_right(lab, state.resume(" but", max_new_tokens=3, worker="worker-1"))
    assert faults.used_bytes(lab) == used


def without_connections(lab: Any, faults: Any, worker: str) -> int:
    """The process of a worker that was started again, so that it has worked, and has spoken to no other yet."""
    faults.kill_and_see(lab, worker)
    faults.wait_for_all(lab)
    lab.materialize("Something of its own.", worker=worker).resume(" so", max_new_tokens=2, worker=worker)
    return int(faults.pid_of(lab, worker))


@pytest.mark.slow
def test_a_worker_that_can_open_no_connection_gives_up_and_says_so(lab: Any, cold: Any, faults: Any) -> None:
    """What it needs lies with another one and cannot be fetched, and nothing can be made where it is."""
    state = lab.materialize(TEXT + "no connection", worker="worker-0")
    used = faults.used_bytes(lab)
    with no_descriptors(without_connections(lab, faults, "worker-1")):
        began = time.monotonic()
        with pytest.raises(NoRoom, match="Too many open files"):
            state.resume(" but", max_new_tokens=3, worker="worker-1", how="map")
        assert time.monotonic() - began < 30
        cold.require_right(lab, state.resume(" but", max_new_tokens=3, worker="worker-0"))
    cold.require_right(lab, state.resume(" but", max_new_tokens=3, worker="worker-1", how="map"))
    assert faults.used_bytes(lab) == used


@pytest.mark.slow
def test_a_worker_that_can_take_no_connection_costs_what_it_has(lab: Any, cold: Any, faults: Any) -> None:
    """Nobody can fetch from it: it is asked three times, and the state is made again by who wants it."""
    state = lab.materialize(TEXT + "not taken", worker="worker-0").transfer("worker-1")
    pid = without_connections(lab, faults, "worker-0")
    with no_descriptors(faults.pid_of(lab, "worker-1")):
        began = time.monotonic()
        answer = state.resume(" but", max_new_tokens=3, worker="worker-0", how="map")
        assert time.monotonic() - began < 60
    cold.require_right(lab, answer)
    assert answer.how == "recompute"
    assert faults.pid_of(lab, "worker-0") == pid
    faults.wait_for_all(lab)
