"""What the handoff benchmark hands over is what arrives, by the road it names; how fast is not asked here."""

from __future__ import annotations

import gc
import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
import xxhash

from kvlab.bench.encryption import QUICK_OPENINGS
from kvlab.bench.handoff import QUICK_ROUNDS, Arrival, Handoff, Sizes, in_turns, look_at, read, run
from kvlab.bench.raw_link import RawLink, what_is_sent
from kvlab.bench.summary import SCHEMA
from kvlab.errors import TransferFailed
from kvlab.progress import Progress
from kvlab.runtime.lab import Lab
from kvlab.transport.segment import Segment, checksum

# The workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="states are mapped on Linux only")

QUIET = Progress("nothing")
NBYTES = 3_000_000


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import kvlab.runtime.calibration as calibration

    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "cache_dir", lambda: folder)
        yield


@pytest.fixture(scope="module")
def lab(tiny_model_dir: str) -> Iterator[Lab]:
    with Lab(model=tiny_model_dir, kv_budget="1 GiB", progress=QUIET) as made:
        yield made


@pytest.fixture(scope="module")
def frames_lab(tiny_model_dir: str) -> Iterator[Lab]:
    with Lab(model=tiny_model_dir, kv_budget="1 GiB", same_host="frames", progress=QUIET) as made:
        yield made


def digest_here(segment: Segment) -> Arrival:
    return look_at(segment)._replace(checksum=checksum(segment.tensor()))


def resident_after_look(segment: Segment) -> Arrival:
    """The kB of mapped states that this process has touched, in place of the checksum."""
    seen = look_at(segment)
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    touched = 0
    for line in lines:
        if "memfd:kvlab " in line:
            touched += next(int(more.split()[1]) for more in lines if more.startswith("Rss:"))
    return seen._replace(checksum=str(touched))


def copies_there(dask_worker: Any) -> int:
    return sum(isinstance(value, Segment) for value in dask_worker.data.values())


@pytest.mark.parametrize(
    ("which", "road"), [pytest.param("lab", "map", marks=pytest.mark.slow), ("frames_lab", "transfer")]
)
def test_every_round_brings_the_same_bytes_again(which: str, road: str, request: pytest.FixtureRequest) -> None:
    handoff = Handoff(request.getfixturevalue(which), NBYTES)
    assert abs(handoff.nbytes - NBYTES) < 10_000
    for task in (digest_here, read, look_at):
        handed = handoff.over(road, task)
        assert 0 < handed.crossing_seconds < handed.task_seconds

    def held() -> list[int]:
        handoff.settle()
        there = handoff._client.run(copies_there)
        return [there[where] for (where,) in (handoff.source, handoff.target)]

    gc.collect()  # what was measured when the lab began may hang on a cycle
    deadline = time.monotonic() + 10
    while (found := held()) != [1, 0] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == [1, 0]


def test_a_mapped_state_is_not_touched_by_looking_at_it(lab: Lab) -> None:
    handoff = Handoff(lab, NBYTES)
    handoff.checksum = "0"
    handoff.over("map", resident_after_look)


def test_another_road_than_the_one_that_is_measured_is_an_error(frames_lab: Lab) -> None:
    with pytest.raises(TransferFailed, match="were to arrive by map; got"):
        Handoff(frames_lab, NBYTES).over("map", look_at)


def test_states_of_different_sizes_differ(lab: Lab) -> None:
    assert Handoff(lab, NBYTES).checksum != Handoff(lab, NBYTES // 2).checksum


@pytest.mark.parametrize("kind", ["stream", "socket"])
def test_a_raw_link_carries_all_bytes_each_time_and_leaves_no_process(kind: Any) -> None:
    with RawLink(kind, NBYTES) as link:
        told = [link.carry() for _ in range(3)]
        processes = psutil.Process(link._receiver.pid).children()
        assert len(processes) == 1
    assert [digest for _, digest in told] == [xxhash.xxh3_64_hexdigest(what_is_sent(NBYTES))] * 3
    assert all(seconds > 0 for seconds, _ in told)
    assert link._receiver.returncode == 0
    assert not any(process.is_running() for process in processes)


def test_a_raw_link_whose_sender_died_says_so() -> None:
    with RawLink("socket", NBYTES) as link:
        link.carry()
        psutil.Process(link._receiver.pid).children()[0].kill()
        with pytest.raises(TransferFailed, match="raw socket ended"):
            link.carry()


def test_works_take_turns_and_the_first_round_does_not_count() -> None:
    done: list[str] = []

    def work(name: str) -> Any:
        def one() -> float:
            done.append(name)
            return float(len(done))

        return one

    assert in_turns([work("a"), work("b"), work("c")], 2) == [[6.0, 8.0], [4.0, 9.0], [5.0, 7.0]]
    assert "".join(done) == "abcbcacab"


@pytest.mark.slow
def test_the_summary_has_every_figure(tiny_model_dir: str, tmp_path: Path) -> None:
    sizes = Sizes(state=NBYTES, small=100_000)
    said = io.StringIO()
    record = run(tmp_path, tiny_model_dir, quick=True, progress=Progress("lines", said), sizes=sizes)
    # Each of its two labs says once that it is not encrypted, as what it is compared with.
    assert said.getvalue().count("Not encrypted") == 2
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == record
    assert (record["schema"], record["experiment"]) == (SCHEMA, "handoff")
    metrics = record["metrics"]
    assert {name: metric["unit"] for name, metric in metrics.items()} == {
        "same_host_ratio_to_empty_task": "×",
        "same_host_extra_ms": "ms",
        "empty_task_ms": "ms",
        "same_host_ms": "ms",
        "same_host_small_ms": "ms",
        "frames_fraction_of_raw_stream": "×",
        "frames_task_fraction_of_raw_stream": "×",
        "frames_bytes_per_second": "B/s",
        "frames_task_bytes_per_second": "B/s",
        "raw_stream_bytes_per_second": "B/s",
        "raw_socket_bytes_per_second": "B/s",
        "new_memory_ms": "ms",
        "tls_map_ratio@2048": "×",
        "tls_map_ms@2048": "ms",
        "plain_map_ms@2048": "ms",
        "tls_frames_ratio@2048": "×",
        "tls_frames_ms@2048": "ms",
        "plain_frames_ms@2048": "ms",
        "tls_open_ratio": "×",
        "tls_open_seconds": "s",
        "plain_open_seconds": "s",
    }
    rounds = {name: QUICK_OPENINGS if "_open_" in name else QUICK_ROUNDS for name in metrics}
    assert all((metric["n"], metric["kind"]) == (rounds[name], "measured") for name, metric in metrics.items())
    assert all(metric["lo"] <= metric["hi"] for metric in metrics.values())
    assert metrics["same_host_ratio_to_empty_task"]["value"] == pytest.approx(
        metrics["same_host_ms"]["value"] / metrics["empty_task_ms"]["value"]
    )
    assert record["environment"]["state_bytes"] == NBYTES
