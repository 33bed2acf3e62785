"""What a transfer takes: bytes on the wire, and memory of the sender's and the receiver's process (PSS)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvlab.store.events import Kind

TEXT = "Each word that was read once is kept, and kept words need room. "
N_REPEATS = 36


def settled_pss() -> int:
    """On a worker: PSS after garbage is collected and free memory went back."""
    import ctypes

    from kvlab.runtime.worker_plugin import pss_bytes

    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return pss_bytes()


@pytest.fixture(scope="module")
def wide_lab(make_lab: Callable[..., Any], wide_model_dir: str) -> Iterator[Any]:
    """States of 32 KiB a token that cross as frames."""
    with make_lab(model=wide_model_dir, same_host="frames", kv_budget="2 GiB") as made:
        yield made


def pss(lab: Any) -> dict[str, int]:
    told = lab.core.client.run(settled_pss)
    return {worker.name: told[worker.address] for worker in lab.workers.values()}


def test_a_transfer_takes_one_state_at_the_receiver_and_nothing_at_the_sender(wide_lab: Any) -> None:
    # What is taken once a process (connections, buffers, code) is taken before the measurement.
    wide_lab.materialize("first " + TEXT, worker="worker-0").transfer("worker-1", keep=True)
    state = wide_lab.materialize(TEXT * N_REPEATS, worker="worker-0")
    assert state.nbytes > 40 * 2**20
    before = pss(wide_lab)
    state.transfer("worker-1", keep=True)
    after = pss(wide_lab)
    received = (after["worker-1"] - before["worker-1"]) / state.nbytes
    kept = (after["worker-0"] - before["worker-0"]) / state.nbytes
    assert 0.9 < received <= 1.2
    assert kept <= 0.2


def test_only_missing_segments_cross(wide_lab: Any) -> None:
    sent: list[Any] = []
    base = wide_lab.materialize("shared " + TEXT * 4, worker="worker-0")
    child = base.resume(" And now", max_new_tokens=8, worker="worker-0").state
    stop = wide_lab.core.hub.listen(lambda _, event: sent.append(event) if event.kind is Kind.SEGMENT_SENT else None)
    base.transfer("worker-1", keep=True)
    made = child.resume(" so", max_new_tokens=2, worker="worker-1", how="transfer")
    time.sleep(0.5)  # workers report every few milliseconds
    wide_lab.core.hub.settle()
    stop()
    assert made.how == "transfer"
    # Each of the two segments crossed once: the shared one to bring the base, the child's own for the child.
    assert [(event.segment, event.nbytes) for event in sent] == [
        (base.record.segments[-1].recipe, base.nbytes),
        (child.record.segments[-1].recipe, child.nbytes - base.nbytes),
    ]
