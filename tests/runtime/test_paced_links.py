"""Labs whose workers send each other paced frames: the same answers, all bytes on the wire, and said wherever it shows."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kvlab
from kvlab.display.report_runs import Told
from kvlab.errors import ClusterError, InvalidInput, TransferFailed
from kvlab.runtime import calibration, worker_process
from kvlab.runtime.engines import ModelSpec
from kvlab.store.events import Event, Kind
from kvlab.store.runs import open_run
from kvlab.transport.link_pace import LinkPace

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 4
PACED = {"same_host": "frames", "link_rate": "16 Mbit/s", "link_latency": "2 ms", "kv_budget": "1 GiB"}


@pytest.fixture(scope="module")
def paced_lab(make_lab: Any) -> Iterator[Any]:
    with make_lab(**PACED) as made:
        yield made


def test_a_paced_transfer_carries_the_bytes_of_the_state_and_changes_no_token(paced_lab: Any, oracle: Any) -> None:
    lab = paced_lab
    state = lab.materialize(TEXT + "paced", worker="worker-0")
    before = state.resume(" on", max_new_tokens=8, worker="worker-0").token_ids
    recipes = {segment.recipe for segment in state.record.segments}
    wire: list[Event] = []
    received = threading.Event()

    def look(run: str, event: Event) -> None:
        if event.kind in (Kind.SEGMENT_SENT, Kind.SEGMENT_RECEIVED) and event.segment in recipes:
            wire.append(event)
            if {one.kind for one in wire} == {Kind.SEGMENT_SENT, Kind.SEGMENT_RECEIVED}:
                received.set()

    stop = lab.core.hub.listen(look)
    state.transfer("worker-1", keep=True)
    assert received.wait(10)
    stop()
    for kind, worker in ((Kind.SEGMENT_SENT, "worker-0"), (Kind.SEGMENT_RECEIVED, "worker-1")):
        events = [event for event in wire if event.kind is kind]
        assert sum(event.nbytes for event in events) == state.nbytes > 0
        assert {(event.worker, event.detail["how"]) for event in events} == {(worker, "transfer")}
    # No byte arrives before the link has carried it: a lower bound, which a busy machine cannot break.
    took = sum(event.seconds for event in wire if event.kind is Kind.SEGMENT_RECEIVED)
    assert took >= 0.002 + state.nbytes / 2e6
    generation = state.resume(" on", max_new_tokens=8, worker="worker-1")
    assert generation.how == "in place"
    assert generation.token_ids == before
    assert list(before) == oracle.greedy([*state.token_ids, *_ids(lab, " on")], 8, lab.core.tokenizer.stop_ids)


def _ids(lab: Any, text: str) -> tuple[int, ...]:
    from kvlab.state.tokens import unpack_ids

    return unpack_ids(lab.core.tokenizer.text_ids(text))


def test_the_measured_link_is_the_paced_one_and_is_kept_apart(paced_lab: Any) -> None:
    core = paced_lab.core
    assert core.pace == LinkPace(2e6, 0.002)
    # The loopback is a hundred times faster; noise of some milliseconds does less to the slope.
    assert core.cost.frames.bytes_per_second < 2 * 2e6
    compute, links = set(), set()
    for pace in (core.pace, None, LinkPace(2e6), LinkPace(3e6, 0.002)):
        core.pace, kept = pace, core.pace
        try:
            of_compute, of_links = calibration.kept(core, 1)
        finally:
            core.pace = kept
        compute.add(of_compute.path)
        links.add(of_links.path)
    assert (len(compute), len(links)) == (1, 4)


def test_it_is_said_that_links_are_paced(paced_lab: Any) -> None:
    assert "links paced to 16 Mbit/s, 2 ms" in repr(paced_lab)
    assert "links paced to 16 Mbit/s, 2 ms" in paced_lab._repr_html_()
    workflow = kvlab.Workflow("paced")
    workflow.agent("only", [workflow.context("paper", TEXT), "Begin."], max_new_tokens=2)
    run = paced_lab.run(workflow).wait()
    saved = open_run(run.path)
    written = saved.world.run["lab"]
    assert (written["link_rate_bits"], written["link_latency_seconds"]) == (16e6, 0.002)
    assert "links paced to 16 Mbit/s, 2 ms" in Told([saved]).lines[0]
    told = paced_lab.core.client.run(lambda dask_worker: dask_worker.plugins["kvlab"].describe()["pace"])
    assert list(told.values()) == [LinkPace(2e6, 0.002)] * 2


def test_a_lab_that_is_not_paced_says_nothing_of_it(frames_lab: Any) -> None:
    assert frames_lab.core.pace is None
    assert "paced" not in repr(frames_lab) + frames_lab._repr_html_()


def test_workers_of_another_pace_are_refused(paced_lab: Any) -> None:
    """As a lab without a pace sees the workers of one that has one."""
    address, security = paced_lab._cluster._address, paced_lab._cluster._certificates.security()
    told = {"model": paced_lab.card.path, "same_host": "frames", "progress": paced_lab.core.progress}
    with pytest.raises(ClusterError, match=r"links paced to 16 Mbit/s, 2 ms, this lab has links that are not paced"):
        kvlab.Lab(address, security=security, **told)


@pytest.mark.slow
def test_a_receiver_killed_in_a_paced_transfer_costs_time_and_no_answer(make_lab: Any, wide_model_dir: str) -> None:
    """32 KiB a token and 8 Mbit/s: the first report of what was sent comes seconds before the last byte."""
    with make_lab(model=wide_model_dir, **{**PACED, "link_rate": "8 Mbit/s"}) as lab:
        state = lab.materialize(TEXT, worker="worker-0")
        assert state.nbytes > 3e6
        before = state.resume(" on", max_new_tokens=4, worker="worker-0").token_ids
        recipes = {segment.recipe for segment in state.record.segments}
        events: list[Event] = []
        killed = threading.Event()

        def look(run: str, event: Event) -> None:
            events.append(event)
            if event.kind is Kind.SEGMENT_SENT and event.segment in recipes and not killed.is_set():
                killed.set()
                os.kill(lab._cluster.pids["worker-1"], signal.SIGKILL)

        stop = lab.core.hub.listen(look)
        with pytest.raises(TransferFailed, match="lost on the way"):
            state.transfer("worker-1", keep=True)
        answer = state.resume(" on", max_new_tokens=4)
        lab.core.hub.settle()
        stop()
        kinds = [
            (event.kind, event.worker) for event in events if event.segment in recipes or event.worker == "worker-1"
        ]
        lost = kinds.index((Kind.WORKER_LOST, "worker-1"))
        assert (Kind.SEGMENT_SENT, "worker-0") in kinds[:lost]
        assert (Kind.SEGMENT_RECEIVED, "worker-1") not in kinds[:lost]
        assert answer.token_ids == before


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"same_host": "map"}, "crosses no link"),
        ({"processes": False}, "processes=False"),
        ({"address": "tcp://127.0.0.1:1"}, "only workers that it starts"),
        ({"link_rate": "12 parsec"}, "parsec"),
        ({"link_rate": None}, "without a link_rate"),
    ],
)
def test_what_cannot_be_paced_is_refused_before_anything_starts(
    make_lab: Any, keywords: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        make_lab(**{**PACED, **keywords})
    assert caught.value.hint


def test_a_worker_on_a_command_line_must_send_frames_to_be_paced(capsys: Any) -> None:
    from kvlab.cli import main

    assert main(["worker", "tcp://127.0.0.1:1", "--model-path", "/nowhere", "--link-rate", "1 Mbit/s"]) == 2
    assert "--same-host frames" in capsys.readouterr().err


@pytest.mark.parametrize("pace", [LinkPace(15e6, 0.002), LinkPace(1e9 / 3, 1e-7), LinkPace(0.1, 0.0)])
def test_the_command_line_of_a_worker_says_its_pace_exactly(pace: LinkPace, tmp_path: Any) -> None:
    from kvlab.cli import _parser
    from kvlab.transport.link_pace import parse_pace

    line = worker_process.command("tcp://here:1", ModelSpec("m", "/m", "cpu", "auto"), "w", "frames", pace, tmp_path)
    chosen = _parser().parse_args(line[3:])
    assert parse_pace(chosen.link_rate, chosen.link_latency) == pace
