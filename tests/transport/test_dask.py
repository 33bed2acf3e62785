"""{fp32, fp16, bf16} × {gather, map, frames, more than one shard} through real workers in processes of their own.

The workers here know nothing of models: they only speak kvlab's transport.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
import torch

import kvlab.transport.serializers as wire
from kvlab.errors import TransferFailed
from kvlab.runtime import dask_settings
from kvlab.transport.segment import Bundle, Header, Segment, checksum

# The workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

DTYPES = ("float32", "float16", "bfloat16")
TOKENS = 9
SHARD_TOKENS = 100_000
"""Dask splits frames of more than 64 MiB; this makes 73 MiB."""

WORKER = """
import asyncio, sys
import torch
from kvlab.runtime import dask_settings
dask_settings.apply()
from distributed import Worker
import kvlab.transport.serializers
from kvlab.transport.samehost import announce

async def serve(address, name, near):
    worker = Worker(address, host="127.0.0.1", nthreads=1, name=name, memory_limit=0, dashboard=False,
                    dashboard_address="127.0.0.1:0", local_directory=sys.argv[4])
    if near == "near":
        announce(worker)
    await worker
    await worker.finished()

asyncio.run(serve(*sys.argv[1:4]))
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A scheduler here; workers a and b that may map from each other, and c, to which everything is far."""
    dask_settings.apply()
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}
    )
    folder = str(tmp_path_factory.mktemp("dask"))
    line = [sys.executable, "-c", WORKER, cluster.scheduler_address]
    workers = [
        subprocess.Popen([*line, name, near, folder]) for name, near in (("a", "near"), ("b", "near"), ("c", "far"))
    ]
    try:
        with Client(cluster, set_as_default=False) as connected:
            connected.wait_for_workers(3, timeout=60)
            yield connected
    finally:
        for process in workers:
            process.terminate()
        for process in workers:
            process.wait(10)
        cluster.close(timeout=5)


def numbers(n_tokens: int, dtype: str) -> Any:
    generator = torch.Generator().manual_seed(n_tokens)
    return torch.randn(3, 2, 2, n_tokens, 16, generator=generator).to(getattr(torch, dtype))


def make(recipe: str, n_tokens: int, dtype: str) -> Any:
    from kvlab.transport.memory import PayloadAllocator

    allocate = PayloadAllocator(3, 2, 16, getattr(torch, dtype), torch.device("cpu"))
    payload = allocate(n_tokens)
    payload.copy_(numbers(n_tokens, dtype))
    payload, block = allocate.seal(payload)
    header = Header(recipe, tuple(payload.shape), dtype, b"", n_tokens, checksum=checksum(payload))
    return Segment(header, payload, block=block)


def make_two(n_tokens: int) -> Any:
    return Bundle([make(f"two-{index}", n_tokens + index, "float32") for index in range(2)])


def pick(bundle: Any, index: int) -> Any:
    return bundle.segments[index]


def look(segment: Any) -> tuple[str, bool, int]:
    payload = segment.tensor()
    return segment.arrived, torch.equal(payload, numbers(payload.shape[3], segment.header.dtype)), segment.nbytes


def memfds() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:kvlab ")


def address_of(client: Any, name: str) -> str:
    return next(
        address for address, seen in client.scheduler_info(n_workers=-1)["workers"].items() if seen["name"] == name
    )


def size_seen(client: Any, key: str) -> int:
    return int(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.tasks[key].nbytes))


@pytest.fixture
def nothing_left(client: Any) -> Iterator[None]:
    """No mapping of a segment stays in a worker once its futures are gone."""
    yield
    deadline = time.monotonic() + 10
    while any((left := client.run(memfds)).values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(left.values())


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_over_every_road(client: Any, dtype: str) -> None:
    nbytes = numbers(TOKENS, dtype).nbytes
    key = f"kv-{dtype}.g0"
    made = client.submit(make, dtype * 3, TOKENS, dtype, key=key, workers=["a"], pure=False)
    assert client.submit(look, made, workers=["a"], pure=False).result(10) == ("computed", True, nbytes)
    assert size_seen(client, key) == nbytes + wire._OBJECT_BYTES
    assert client.submit(look, made, workers=["b"], pure=False).result(10) == ("map", True, nbytes)
    assert client.submit(look, made, workers=["c"], pure=False).result(10) == ("transfer", True, nbytes)
    gathered = made.result(10)
    assert gathered.arrived == "transfer"
    assert gathered.tensor().dtype == getattr(torch, dtype)
    assert torch.equal(gathered.tensor(), numbers(TOKENS, dtype))
    assert gathered.header.checksum == checksum(gathered.tensor())


@pytest.mark.usefixtures("nothing_left")
def test_a_payload_larger_than_a_shard(client: Any) -> None:
    nbytes = numbers(SHARD_TOKENS, "float32").nbytes
    made = client.submit(make, "large" * 3, SHARD_TOKENS, "float32", key="kv-large.g0", workers=["a"], pure=False)
    # In this order: b may fetch from whoever has it, and c has nothing that could be mapped.
    assert client.submit(look, made, workers=["b"], pure=False).result(30) == ("map", True, nbytes)
    assert client.submit(look, made, workers=["c"], pure=False).result(30) == ("transfer", True, nbytes)


def address_in_memory(segment: Any) -> tuple[str, int]:
    return segment.arrived, segment.tensor().data_ptr() % wire.ALIGNMENT


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("n_tokens", [1, TOKENS, 600, SHARD_TOKENS])
@pytest.mark.parametrize("length", range(3))
def test_a_payload_lies_on_a_boundary_whatever_was_ahead_of_it(client: Any, n_tokens: int, length: int) -> None:
    """From less than 128 kB, which Dask sends in one piece, to more than it sends in one frame by itself."""
    key = f"kv-boundary{n_tokens}{'x' * length}.g0"
    made = client.submit(make, "edge" + "x" * length, n_tokens, "float32", key=key, workers=["a"], pure=False)
    assert client.submit(address_in_memory, made, workers=["c"], pure=False).result(30) == ("transfer", 0)
    assert client.submit(look, made, workers=["c"], pure=False).result(30)[1]


@pytest.mark.usefixtures("nothing_left")
def test_siblings_are_picked_from_their_bundle_over_the_same_memory(client: Any) -> None:
    bundle = client.submit(make_two, TOKENS, key="bundle", workers=["a"], pure=False)
    picked = [client.submit(pick, bundle, i, key=f"kv-two-{i}.g0", workers=["a"], pure=False) for i in range(2)]
    there = client.submit(look, picked[1], workers=["b"], pure=False)
    assert there.result(10)[:2] == ("map", True)
    total = sum(numbers(TOKENS + i, "float32").nbytes for i in range(2))
    assert size_seen(client, "bundle") == total + wire._OBJECT_BYTES
    assert size_seen(client, "kv-two-1.g0") == numbers(TOKENS + 1, "float32").nbytes + wire._OBJECT_BYTES
    del bundle, picked[0]
    assert client.submit(look, picked[0], workers=["a"], pure=False).result(10)[1]


def test_a_segment_inside_another_object_is_an_error_and_not_a_pickle(client: Any) -> None:
    nested = client.submit(
        lambda: SimpleNamespace(kv=make("nested", TOKENS, "float32")), key="nested", workers=["a"], pure=False
    )
    with pytest.raises(TypeError, match="whole result of a task"):
        nested.result(20)


def break_receiving() -> None:
    from kvlab.transport.memory import Block

    def refuse(**_: Any) -> Any:
        raise PermissionError("not yours")

    Block.unbroken = Block.open  # type: ignore[attr-defined]
    Block.open = refuse  # type: ignore[method-assign,assignment]


def mend_receiving() -> None:
    from kvlab.transport.memory import Block

    Block.open = Block.unbroken  # type: ignore[attr-defined,method-assign]


def test_one_that_cannot_be_received_is_a_named_error_and_poisons_nothing(client: Any) -> None:
    address = address_of(client, "b")
    made = client.submit(make, "broken" * 3, TOKENS, "float32", key="kv-broken.g0", workers=["a"], pure=False)
    client.run(break_receiving, workers=[address])
    try:
        with pytest.raises(TransferFailed, match=r"PermissionError: not yours, 3 times"):
            client.submit(look, made, workers=["b"], pure=False).result(30)
    finally:
        client.run(mend_receiving, workers=[address])
    other = client.submit(make, "mended" * 3, TOKENS, "float32", key="kv-mended.g0", workers=["a"], pure=False)
    assert client.submit(look, other, workers=["b"], pure=False).result(10)[:2] == ("map", True)


def test_a_mapper_outlives_the_maker(client: Any) -> None:
    """Last in this file: it kills a worker."""
    made = client.submit(make, "orphan" * 3, TOKENS, "bfloat16", key="kv-orphan.g0", workers=["a"], pure=False)
    client.submit(look, made, workers=["b"], pure=False).result(10)
    assert len(client.who_has([made])["kv-orphan.g0"]) == 2
    os.kill(client.run(os.getpid)[address_of(client, "a")], signal.SIGKILL)
    assert client.submit(look, made, workers=["b"], pure=False).result(20)[:2] == ("map", True)
    assert client.submit(look, made, workers=["c"], pure=False).result(20)[:2] == ("transfer", True)
