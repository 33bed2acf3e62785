"""K/V goes to disk and comes back as it was; what does not is computed again, and the reason is told."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvlab.errors import IllegalTransition, InvalidInput, NoRoom
from kvlab.runtime.scratch import make_scratch, remove_scratch
from kvlab.store.events import Kind
from kvlab.workflow import Workflow

ROOM = 600 << 10
TEXT = "What was computed once can be moved, mapped, forked, merged and evicted. " * 8


@pytest.fixture(scope="module")
def disk_lab(make_lab: Any, tmp_path_factory: Any) -> Any:
    """Two workers that may spill 600 KiB: two states of the text."""
    with make_lab(kv_budget="64 MiB", spill_bytes=ROOM) as made:
        yield made


def files(lab: Any) -> list[Path]:
    return sorted((lab._scratch / "spilled").iterdir())


def waited_for(there: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def actual(lab: Any) -> dict[str, Any]:
    """What the last decided edge came to."""
    row: dict[str, Any] = lab._session.world.rows["edges"][-1]
    return row


def test_a_spilled_state_is_a_private_file_and_comes_back_as_it_was(disk_lab: Any) -> None:
    state = disk_lab.materialize(TEXT)
    before = state.resume(" And", max_new_tokens=6).token_ids
    logits = state.next_logits()
    disk_lab.core.catalog.reap()
    disk_lab.core.catalog.leaving.wait()
    used = disk_lab.core.catalog.budget.used_bytes
    assert state.spill() == state.nbytes
    assert (state.phase, state.workers) == ("spilled", ())
    assert disk_lab.core.catalog.budget.used_bytes == used - state.nbytes
    (file,) = files(disk_lab)
    assert file.stat().st_size > state.nbytes
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700
    again = state.resume(" And", max_new_tokens=6, how="restore")
    assert (again.token_ids, again.how, again.n_reused) == (before, "restore", state.n_tokens)
    assert state.phase == "resident"
    assert (state.next_logits() == logits).all()
    told = actual(disk_lab)
    assert (told["chosen"], told["actual_how"]) == ("restore", "restore")
    assert {"queue", "transfer", "prefill", "resume", "overhead"} <= again.decision.chosen.terms.keys()
    assert {road.how for road in again.decision.alternatives} == {"restore", "recompute"}
    phases = [e["phase"] for e in disk_lab._session.world.rows["states"] if e["state"] == state.id]
    assert phases == ["resident"]


def test_its_file_stays_so_that_it_can_leave_again_for_nothing_and_goes_with_it(disk_lab: Any) -> None:
    state = disk_lab.materialize("Alone. " + TEXT)
    state.spill()
    state.resume(" And", max_new_tokens=2)
    n_files = len(files(disk_lab))
    written = files(disk_lab)[-1].stat().st_mtime_ns
    state.spill()
    assert (len(files(disk_lab)), files(disk_lab)[-1].stat().st_mtime_ns) == (n_files, written)
    state.evict()
    assert (state.phase, len(files(disk_lab))) == ("evicted", n_files - 1)
    assert state.resume(" And", max_new_tokens=2).how == "recompute"


def flipped(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        byte = opened.read(1)[0]
        opened.seek(-1, 1)
        opened.write(bytes([byte ^ 1]))


def cut_off(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(flipped, "are not those that were written"), (cut_off, "cut off or overwritten"), (Path.unlink, "No such file")],
)
@pytest.mark.parametrize("flow", ["verb", "run"])
def test_a_damaged_file_is_told_and_the_state_computed_again(
    damage: Any, reason: str, flow: str, disk_lab: Any
) -> None:
    disk_lab.clear()
    text = f"{flow} {reason}. {TEXT}"
    if flow == "verb":
        state = disk_lab.materialize(text)
        before = state.resume(" And", max_new_tokens=6).token_ids
        state.spill()
        damage(files(disk_lab)[-1])
        again = state.resume(" And", max_new_tokens=6, how="restore")
        assert (again.token_ids, again.how) == (before, "recompute")
        told = actual(disk_lab)
        assert len(files(disk_lab)) == 0
    else:
        wf = Workflow("damaged")
        paper = wf.context("paper", text)
        first = wf.agent("first", [paper, "Begin."], max_new_tokens=4)
        wf.agent("second", [paper, first, "Go on."], max_new_tokens=4)
        expected = disk_lab.run(wf).wait()["second"].token_ids
        run = disk_lab.run(wf, paused=True, overrides={"context:paper→second": "restore"}, min_shared_tokens=1)
        run.play(until="second")
        waited_for(lambda: run.pending is not None and run.pending.agents == ("second",))
        run.states["first"].evict()
        run.states["context:paper"].spill()
        damage(files(disk_lab)[-1])
        run.play()
        assert run.wait()["second"].token_ids == expected
        told = next(row for row in run.tables["edges"].to_pylist() if row["target"] == "second")
    assert (told["chosen"], told["actual_how"]) == ("restore", "recompute")
    assert told["because"].startswith("planned restore: ")
    assert reason in told["because"]


def test_what_only_partly_lies_on_disk_is_read_and_the_rest_used_where_it_is(disk_lab: Any) -> None:
    disk_lab.clear()
    base = disk_lab.materialize("Shared. " + TEXT, worker="worker-0")
    leaf = base.resume(" First,", max_new_tokens=4, worker="worker-0").state
    assert leaf.spill() == leaf.nbytes - base.nbytes
    assert (base.phase, leaf.phase) == ("resident", "spilled")
    again = leaf.resume(" then", max_new_tokens=4, worker="worker-0", how="restore")
    assert again.n_reused == leaf.n_tokens
    fork, _ = leaf.fork(2)
    leaf.resume(" x", max_new_tokens=1)
    assert (leaf.phase, fork.phase) == ("resident", "resident")


def test_a_fork_of_a_spilled_state_is_spilled_and_comes_back_with_it(disk_lab: Any) -> None:
    state = disk_lab.materialize("Forked. " + TEXT)
    state.spill()
    (fork,) = state.fork(1)
    assert (state.phase, fork.phase) == ("spilled", "spilled")
    assert fork.resume(" And", max_new_tokens=1, how="restore").how == "restore"
    assert (state.phase, fork.phase) == ("resident", "resident")


def test_who_keeps_a_state_is_obeyed(disk_lab: Any) -> None:
    state = disk_lab.materialize("Kept. " + TEXT)
    with state.lease(60) as held:
        assert held is state
        for leaving in (state.spill, state.evict):
            with pytest.raises(InvalidInput, match=r"leased for \d+"):
                leaving()
    lease = state.lease(0.001)
    assert lease.seconds_left <= 0.001
    waited_for(lambda: lease.seconds_left == 0)
    state.pin()
    with pytest.raises(InvalidInput, match="pinned"):
        state.spill()
    state.unpin().spill()
    with pytest.raises(IllegalTransition, match="spilled"):
        state.spill()
    with pytest.raises(IllegalTransition, match="only what is in memory"):
        state.pin()
    for seconds in (0, -1, float("inf"), float("nan"), True, "1"):
        with pytest.raises(InvalidInput, match="no time"):
            state.lease(seconds)


def test_a_full_disk_tier_drops_what_was_used_least_lately(disk_lab: Any) -> None:
    disk_lab.clear()
    states = [disk_lab.materialize(f"{n}. {TEXT}") for n in range(4)]
    assert sum(state.nbytes for state in states) > ROOM > max(state.nbytes for state in states)
    for state in states:
        state.spill()
        assert disk_lab.core.catalog.disk.used_bytes <= ROOM
        assert sum(file.stat().st_size for file in files(disk_lab)) == disk_lab.core.catalog.disk.used_bytes
    assert (states[0].phase, states[-1].phase) == ("evicted", "spilled")
    assert states[0].resume(" x", max_new_tokens=1).how == "recompute"
    assert states[-1].resume(" x", max_new_tokens=1, how="restore").how == "restore"


def test_what_is_larger_than_the_disk_tier_stays_in_memory(disk_lab: Any) -> None:
    disk_lab.clear()
    state = disk_lab.materialize(TEXT * 3)
    assert state.nbytes > ROOM
    with pytest.raises(NoRoom, match="stay in memory"):
        state.spill()
    assert state.phase == "resident"
    assert files(disk_lab) == []


def test_sizes_that_cannot_be_meant_are_refused_before_anything_starts(make_lab: Any) -> None:
    for wrong, message in (
        ({"spill_bytes": -1}, "no size"),
        ({"spill_bytes": "much"}, "no size"),
        ({"spill_bytes": "1 GiB", "address": "tcp://nowhere:1"}, "other machines"),
        ({"device_kv_budget": 0}, "device_kv_budget=0 leaves no room"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make_lab(**wrong)


def test_under_a_budget_states_are_spilled_where_that_is_quicker_and_answers_are_the_same(make_lab: Any) -> None:
    texts = [f"Number {n}. {TEXT}" for n in range(4)]
    with make_lab(workers=1, kv_budget="64 MiB", spill_bytes=0) as lab:
        states = [lab.materialize(text) for text in texts]
        expected = [state.resume(" So", max_new_tokens=5).token_ids for state in states]
        room = 2 * max(state.nbytes for state in states) + 64 * lab.core.config.bytes_per_token
        with pytest.raises(InvalidInput, match="spills nothing"):
            states[0].spill()
        assert not (lab._scratch / "spilled").exists()
    with make_lab(workers=1, kv_budget=room, spill_bytes="8 MiB") as lab:
        lab.core.catalog.disk.seconds = lambda _: 0.0  # so quick a disk makes every segment worth its file
        states = [lab.materialize(text) for text in texts]
        assert [state.phase for state in states].count("spilled") >= 2
        found = [
            state.resume(" So", max_new_tokens=5, how="restore" if state.phase == "spilled" else None)
            for state in states
        ]
        assert [one.token_ids for one in found] == expected
        assert [one.how for one in found].count("restore") >= 2
        assert sum(one.n_prefilled for one in found) < 4 * 40
        peak = max(row["kv_unique_bytes"] or 0 for row in lab._session.world.rows["memory"])
        assert peak <= room
        scratch = lab._scratch
    assert not scratch.exists()


def test_the_log_tells_of_phases_and_of_what_was_read(disk_lab: Any) -> None:
    seen: list[tuple[str, str]] = []
    state = disk_lab.materialize("Told. " + TEXT)

    disk_lab.core.hub.settle()

    def look(_: str, event: Any) -> None:
        if event.kind is Kind.STATE_PHASE and event.state == state.id:
            seen.append((event.detail["now"], event.detail["then"]))
        if event.kind is Kind.SEGMENT_PLACED and event.segment == state.record.segments[0].recipe:
            seen.append(("placed", event.detail["how"]))

    stop = disk_lab.core.hub.listen(look)
    state.spill()
    state.resume(" x", max_new_tokens=1, how="restore")
    # A worker tells a moment later, and not in the order of the lab.
    waited_for(lambda: {("placed", "restored"), ("spilled", "resident")} <= set(seen))
    stop()
    assert [one for one in seen if one[0] != "placed"] == [
        ("resident", "evictable"),
        ("evictable", "spilled"),
        ("spilled", "resident"),
    ]


KILLED = """
import os, signal, sys
import kvlab
if __name__ == "__main__":
    lab = kvlab.Lab(model=sys.argv[1], workers=1, kv_budget="16 MiB", spill_bytes="1 MiB")
    state = lab.materialize("Left behind. " * 20)
    state.spill()
    print(lab._scratch, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_files_of_a_lab_that_was_killed_are_gone_after_the_next_start(
    tiny_model_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, script, tiny_model_dir], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = Path(done.stdout.split()[-1])
    assert len(list((left / "spilled").iterdir())) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remove_scratch(make_scratch())
    assert not left.exists()


# -- a budget of each device


def test_no_device_holds_more_than_it_may_and_the_error_says_who_holds_it(make_lab: Any) -> None:
    with make_lab(kv_budget="64 MiB", device_kv_budget=1000 * 768, spill_bytes=0) as lab:
        per_token = lab.core.config.bytes_per_token
        assert per_token == 768
        budget = lab.core.catalog.budget
        states = [lab.materialize(f"{n}. {TEXT}", worker="worker-0") for n in range(5)]
        assert sum(state.nbytes for state in states) > budget.device_limit_bytes > 2 * states[0].nbytes
        assert [state.phase for state in states].count("evicted") >= 2
        assert 0 < budget.used_on("worker-0") <= budget.device_limit_bytes
        assert budget.used_on("worker-1") == 0
        states[-1].transfer("worker-1")
        lab.core.catalog.leaving.wait()
        assert budget.used_on("worker-1") == states[-1].nbytes
        assert budget.used_bytes == budget.used_on("worker-0") + budget.used_on("worker-1")
        lab.clear()
        assert [budget.used_on(f"worker-{n}") for n in (0, 1)] == [0, 0]
        kept = lab.materialize(TEXT, name="kept", worker="worker-0").pin()
        leased = lab.materialize("A lease. " * 6, name="leased", worker="worker-0")
        with leased.lease(60), pytest.raises(NoRoom) as caught:
            lab.materialize("Too much. " + TEXT * 2, worker="worker-0")
        assert "of KV memory on worker-0" in str(caught.value)
        assert f"{kept.id} kept" in str(caught.value)
        assert "(pinned)" in str(caught.value)
        assert "(leased for" in str(caught.value)
        assert "device_kv_budget" in caught.value.hint
        assert caught.value.data["need_bytes"] > caught.value.data["free_bytes"]
        assert sum(nbytes for _, nbytes, _ in caught.value.data["held"]) == budget.used_on("worker-0")
        assert lab.materialize("Too much. " + TEXT, worker="worker-1").phase == "resident"
