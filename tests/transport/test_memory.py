"""Blocks: written once, sealed, mapped by others, freed with the last holder."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kvlab.engine.payload import shortened
from kvlab.errors import NoRoom
from kvlab.transport.memory import Block, PayloadAllocator, map_offer, own_pid, raise_descriptor_limit

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's"),
    pytest.mark.usefixtures("same_descriptors_after"),
]
CPU = torch.device("cpu")


def python(code: str, *arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, **how)


def written_block(values: torch.Tensor) -> Block:
    block = Block.create(values.nbytes)
    block.tensor(tuple(values.shape), values.dtype).copy_(values)
    return block.sealed()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_mapper_reads_the_makers_bytes(dtype: torch.dtype) -> None:
    values = torch.randn(3, 2, 2, 5, 8).to(dtype)
    sealed = written_block(values)
    mapped = Block.open(**map_offer(sealed))
    assert (mapped.inode, mapped.nbytes) == (sealed.inode, values.nbytes)
    assert not mapped.writable
    assert torch.equal(mapped.tensor(tuple(values.shape), dtype), values)


def test_a_payload_that_ended_early_leaves_no_more_memory_than_it_needs() -> None:
    allocate = PayloadAllocator(3, 2, 16, torch.float32, CPU)
    whole = allocate(9)
    whole.copy_(torch.randn(whole.shape))
    expected = whole[..., :4, :].clone()
    payload, block = allocate.seal(shortened(whole, 4))
    assert torch.equal(payload, expected)
    assert block is not None
    assert block.nbytes == os.fstat(block.fd).st_size == expected.nbytes
    mapped = Block.open(**map_offer(block))
    assert torch.equal(mapped.tensor(tuple(expected.shape), torch.float32), expected)


def test_a_new_block_is_zero_and_writable() -> None:
    block = Block.create(4096)
    payload = block.tensor((1024,), torch.float32)
    assert payload.count_nonzero() == 0
    payload[7] = 3.0
    assert block.tensor((1024,), torch.float32)[7] == 3.0


def test_sealed_memory_cannot_be_mapped_writable_resized_or_written() -> None:
    sealed = written_block(torch.ones(16))
    again = os.open(f"/proc/self/fd/{sealed.fd}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(again, sealed.nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        for attempt in (
            lambda: os.pwrite(again, b"x", 0),
            lambda: os.ftruncate(again, 1),
            lambda: os.ftruncate(again, 1 << 20),
        ):
            with pytest.raises(PermissionError):
                attempt()
    finally:
        os.close(again)
    assert torch.equal(sealed.tensor((16,), torch.float32), torch.ones(16))


def test_writing_through_a_sealed_tensor_is_fatal_and_changes_nothing() -> None:
    done = python(
        """
import sys, torch
from kvlab.transport.memory import Block
block = Block.create(64)
block.tensor((16,), torch.float32).fill_(1)
sealed = block.sealed()
assert sealed.tensor((16,), torch.float32)[3] == 1
print("before", flush=True)
sealed.tensor((16,), torch.float32)[3] = 2
print("after", flush=True)
"""
    )
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGBUS)
    assert done.stdout == "before\n"


def test_a_mapper_needs_neither_the_makers_descriptor_nor_its_life() -> None:
    code = """
import sys, torch
from kvlab.transport.memory import Block, map_offer
block = Block.create(4096)
block.tensor((1024,), torch.float32).copy_(torch.arange(1024.0))
sealed = block.sealed()
del block
print(*map_offer(sealed).values(), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        pid, fd, inode, nbytes = map(int, maker.stdout.readline().split())
        assert pid == maker.pid
        mapped = Block.open(pid, fd, inode, nbytes)
        maker.kill()
        maker.wait()
    with pytest.raises(FileNotFoundError):
        Block.open(pid, fd, inode, nbytes)
    values = mapped.tensor((1024,), torch.float32)
    third = Block.open(**map_offer(mapped))
    del mapped
    assert torch.equal(values, torch.arange(1024.0))
    assert torch.equal(third.tensor((1024,), torch.float32), values)


def test_the_makers_own_block_may_go_first() -> None:
    sealed = written_block(torch.full((4,), 2.0))
    mapped = Block.open(**map_offer(sealed))
    del sealed
    assert mapped.tensor((4,), torch.float32).tolist() == [2.0] * 4


@pytest.mark.parametrize("field", ["inode", "nbytes"])
def test_another_block_at_the_descriptor_is_refused(field: str) -> None:
    sealed = written_block(torch.zeros(4))
    offer = map_offer(sealed)
    offer[field] += 1
    with pytest.raises(OSError, match="no longer the block") as caught:
        Block.open(**offer)
    assert caught.value.errno == errno.ESTALE


@pytest.mark.timeout(10)
def test_a_descriptor_that_became_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    """The receiver opens it on its event loop, where nothing may block."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="no longer the block"):
            Block.open(own_pid(), reader, 1, 1)
    finally:
        os.close(reader)


@pytest.mark.parametrize("gone", ["pid", "fd"])
def test_a_descriptor_that_is_gone_is_an_oserror(gone: str) -> None:
    sealed = written_block(torch.zeros(4))
    with pytest.raises(OSError, match="No such file"):
        Block.open(**{**map_offer(sealed), gone: 999_999_999})


def test_no_descriptors_left_is_no_room() -> None:
    """Wherever they run out: in making, mapping or sealing, the error is NoRoom and names what to try."""
    done = python(
        """
import os, resource, torch
from kvlab.errors import NoRoom
from kvlab.transport.memory import PayloadAllocator
allocate = PayloadAllocator(1, 1, 4, torch.float32, torch.device("cpu"))
allocate.seal(allocate(1))
held = len(os.listdir("/proc/self/fd"))
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
refused = 0
for limit in range(72, 80):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    kept = []
    try:
        while True:
            kept.append(allocate.seal(allocate(1)))
    except NoRoom as error:
        assert error.hint and error.data["need_bytes"] == 32
        refused += 1
    assert kept
    del kept
    # At most a block that was made and not sealed, which goes with its allocator.
    assert len(os.listdir("/proc/self/fd")) <= held + 2 * refused
    allocate.seal(allocate(1))
print(refused)
"""
    )
    assert done.stdout == "8\n", done.stderr


def test_blocks_leave_descriptors_to_connections() -> None:
    done = python(
        """
import os, resource
from kvlab.errors import NoRoom
from kvlab.transport.memory import KEPT_DESCRIPTORS, Block
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
kept = []
try:
    while True:
        kept.append(Block.create(4096))
except NoRoom:
    for _ in range(KEPT_DESCRIPTORS - 1):  # the last block's mapping has one
        kept.append(os.dup(0))
print(sum(isinstance(one, Block) for one in kept) > 10)
"""
    )
    assert done.stdout == "True\n", done.stderr


def test_no_memory_is_no_room() -> None:
    with pytest.raises(NoRoom) as caught:
        Block.create(1 << 60)
    assert caught.value.hint
    assert caught.value.data["need_bytes"] == 1 << 60


def test_the_descriptor_limit_is_raised_to_what_the_system_allows() -> None:
    done = python(
        """
import resource
from kvlab.transport.memory import raise_descriptor_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
raise_descriptor_limit()
soft, after = resource.getrlimit(resource.RLIMIT_NOFILE)
assert after == hard
assert soft == hard or hard == resource.RLIM_INFINITY, (soft, hard)
"""
    )
    assert done.returncode == 0, done.stderr
    raise_descriptor_limit()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_allocator_seals_what_it_made(dtype: torch.dtype) -> None:
    allocate = PayloadAllocator(3, 2, 16, dtype, CPU)
    payload, other = allocate(7), allocate(5)
    assert tuple(payload.shape) == (3, 2, 2, 7, 16)
    assert payload.dtype == dtype
    assert payload.is_contiguous()
    payload.copy_(torch.randn(payload.shape).to(dtype))
    expected = payload.clone()
    sealed, block = allocate.seal(payload)
    assert block is not None
    assert block.nbytes == payload.nbytes == sealed.nbytes
    assert sealed.shape == payload.shape
    assert torch.equal(sealed, expected)
    assert fcntl.fcntl(block.fd, 1034) & 0x10  # F_GET_SEALS, F_SEAL_FUTURE_WRITE
    _, second = allocate.seal(other)
    assert second is not None
    assert second.inode != block.inode


def test_a_payload_of_another_maker_is_left_as_it_is() -> None:
    payload = torch.zeros(3, 2, 2, 7, 16)
    same, block = PayloadAllocator(3, 2, 16, torch.float32, CPU).seal(payload)
    assert same is payload
    assert block is None


def test_payloads_that_were_not_sealed_are_freed_with_the_allocator() -> None:
    allocate = PayloadAllocator(3, 2, 16, torch.float32, CPU)
    allocate(100)
    before = len(os.listdir("/proc/self/fd"))
    del allocate
    assert len(os.listdir("/proc/self/fd")) < before


def test_memory_goes_with_the_last_tensor_over_it() -> None:
    sealed = written_block(torch.ones(1 << 20))
    inode = sealed.inode
    values = Block.open(**map_offer(sealed)).tensor((1 << 20,), torch.float32)
    del sealed
    assert mappings(inode) == 1
    assert values.sum() == 1 << 20
    del values
    assert mappings(inode) == 0


def mappings(inode: int) -> int:
    """Mappings of one memfd in this process; with its descriptors (see the fixture) all that keeps its memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(1 for line in lines if line.split()[4] == str(inode))


def test_own_pid_is_the_one_proc_shows() -> None:
    assert os.readlink(f"/proc/{own_pid()}/exe") == os.readlink("/proc/self/exe")
