"""A segment that nobody can be asked for counts as arrived, without its payload, after three tries."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from distributed import Worker
from distributed.worker_state_machine import GatherDepNetworkFailureEvent, GatherDepSuccessEvent

from kvlab.errors import TransferFailed
from kvlab.runtime.fetching import FETCHES, SegmentWorker
from kvlab.runtime.keys import BACK, segment_key

SEGMENT = segment_key("a" * 64, 0, "1f")
HALF = f"{BACK}{SEGMENT}"
OTHER = "meta-of-something"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``asked(*keys, fails=True)``: what became of asking another worker for these keys."""
    worker = object.__new__(SegmentWorker)
    worker._failures = Counter()

    def ask(*keys: str, fails: bool = True) -> Any:
        async def gather_dep(self: Any, worker: str, keys: Any, total: int, *, stimulus_id: str) -> Any:
            told: dict[str, Any] = {"worker": worker, "total_nbytes": total, "stimulus_id": stimulus_id}
            if fails:
                return GatherDepNetworkFailureEvent(**told)
            return GatherDepSuccessEvent(**told, data=dict.fromkeys(keys, 1))

        monkeypatch.setattr(Worker, "gather_dep", gather_dep)
        return asyncio.run(worker.gather_dep("tcp://there:1", keys, 5, stimulus_id="test"))

    return ask


@pytest.mark.parametrize("key", [SEGMENT, HALF])
def test_the_third_failure_in_a_row_is_an_answer(asked: Any, key: str) -> None:
    for _ in range(2):  # it is counted anew afterwards
        for _ in range(FETCHES - 1):
            assert isinstance(asked(key, OTHER), GatherDepNetworkFailureEvent)
        event = asked(key, OTHER)
        assert isinstance(event, GatherDepSuccessEvent)
        assert (event.worker, event.total_nbytes, list(event.data)) == ("tcp://there:1", 5, [key])
        with pytest.raises(TransferFailed, match=r"tcp://there:1 could not be reached, 3 times") as caught:
            event.data[key].tensor()
        assert caught.value.data["recipe"] == "a" * 64


def test_one_success_between_them_counts(asked: Any) -> None:
    for _ in range(2):
        for _ in range(FETCHES - 1):
            asked(SEGMENT)
        assert asked(SEGMENT, fails=False).data == {SEGMENT: 1}


def test_what_is_no_segment_is_left_to_dask(asked: Any) -> None:
    assert all(isinstance(asked(OTHER), GatherDepNetworkFailureEvent) for _ in range(2 * FETCHES))
