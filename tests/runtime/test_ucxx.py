"""UCX as the wire, over tcp and over shared memory, on CPUs. Skipped where the extra is not installed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvlab.errors import InvalidInput
from kvlab.store.events import Kind

pytest.importorskip("distributed_ucxx", reason="needs pip install 'kvlab[ucx]'")
pytestmark = pytest.mark.slow

TEXT = "Bytes of a state cross a wire, whatever carries them. " * 12


@pytest.fixture(scope="module", params=["tcp", "sm,tcp,self"])
def ucxx_lab(request: pytest.FixtureRequest, make_lab: Callable[..., Any]) -> Iterator[Any]:
    """Two workers whose frames go through UCX, over these of its transports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", request.param)
        with make_lab(protocol="ucxx", same_host="frames", security=False, kv_budget="1 GiB") as made:
            yield made


@pytest.mark.parametrize("how", ["transfer", "hybrid", "recompute"])
def test_every_road_gives_the_same_tokens(ucxx_lab: Any, oracle: Any, how: str) -> None:
    assert all(worker.address.startswith("ucxx://127.0.0.1") for worker in ucxx_lab.workers.values())
    sent: list[Any] = []
    stop = ucxx_lab.core.hub.listen(lambda _, event: sent.append(event) if event.kind is Kind.SEGMENT_SENT else None)
    state = ucxx_lab.materialize(how + TEXT, worker="worker-0")
    made = state.resume(" so", max_new_tokens=10, worker="worker-1", how=how)
    ids = [*made.state.token_ids, made.token_ids[-1]]
    assert list(made.token_ids) == oracle.greedy(ids[:-10], 10, frozenset())
    time.sleep(0.5)  # workers report every few milliseconds
    ucxx_lab.core.hub.settle()
    stop()
    crossed = sum(event.nbytes for event in sent)
    assert crossed == {"transfer": state.nbytes, "recompute": 0}.get(how, crossed)
    assert (crossed > 0) == (how != "recompute")


def test_mapping_is_refused_because_ucx_cannot(make_lab: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match="nothing is mapped"):
        make_lab(protocol="ucxx")
