"""Memory that another process of this host can map: one memfd a segment.

Every holder keeps a descriptor and a mapping of its own, so each is a full owner: it does not matter who made the
memory, who lets go first, or who is killed. When the last holder is gone the kernel frees it; there is no name to unlink.
Blocks are written once and then sealed: no one can resize them or map them writable again.

Linux only; elsewhere :func:`available` is False and payloads are ordinary tensors that travel as frames.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import sys
import warnings
import weakref
from typing import TYPE_CHECKING

from kvlab.errors import NoRoom, TransferFailed

if TYPE_CHECKING:
    import torch

# linux/fcntl.h; Python 3.11's fcntl has no F_SEAL_FUTURE_WRITE.
_F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_FUTURE_WRITE = 0x2, 0x4, 0x10
KEPT_DESCRIPTORS = 32
"""Numbers that blocks leave to connections: without one a worker could neither fetch nor be asked."""
_NO_MEMORY = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE})


def available() -> bool:
    """Whether this system has memfd and /proc, so that payloads can be mapped."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


def own_pid() -> int:
    """The process's id as /proc shows it (in a container's own /proc it may differ from ``os.getpid``)."""
    return int(os.readlink("/proc/self"))


class Block:
    """A memfd of ``nbytes`` bytes and this process's mapping of it. Close is automatic when nothing refers to it."""

    __slots__ = ("__weakref__", "_map", "fd", "inode", "nbytes", "writable")

    def __init__(self, fd: int, nbytes: int, *, writable: bool) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self.writable = writable
        weakref.finalize(self, os.close, fd)
        self.inode = os.fstat(fd).st_ino
        protection = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        self._map = mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=protection)

    @classmethod
    def create(cls, nbytes: int) -> Block:
        """A new writable block of zeros.

        Raises
        ------
        NoRoom
            When the kernel has no memory or descriptors left for it.
        """
        try:
            fd = _affordable(os.memfd_create("kvlab", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        except OSError as error:
            raise _no_room(error, nbytes) from error
        try:
            os.ftruncate(fd, nbytes)
        except OSError as error:
            os.close(fd)
            raise _no_room(error, nbytes) from error
        try:
            return cls(fd, nbytes, writable=True)
        except OSError as error:  # the half-made block closes the descriptor
            raise _no_room(error, nbytes) from error

    @classmethod
    def open(cls, pid: int, fd: int, inode: int, nbytes: int) -> Block:
        """Map a block that process ``pid`` of this host holds at descriptor ``fd``. Moves no bytes, never waits.

        Raises
        ------
        OSError
            When it is not there any more, or is not the block that was meant.
        """
        # A number that was given back may name a FIFO by now, whose opening would wait for a writer.
        mine = _affordable(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        status = os.fstat(mine)
        # /proc shows a process's descriptors to its own user and to root; as root, this refuses what another user offers.
        if (status.st_ino, status.st_size, status.st_uid) != (inode, nbytes, os.geteuid()):
            os.close(mine)
            raise OSError(errno.ESTALE, f"descriptor {fd} of process {pid} is no longer the block that was offered")
        return cls(mine, nbytes, writable=False)

    def sealed(self, nbytes: int | None = None) -> Block:
        """Forbid every later change, and return the same memory mapped read-only. Give up the writable one after this.

        With ``nbytes`` only the first so many stay, and the kernel has the rest back.

        Raises
        ------
        NoRoom
            When there are no descriptors left for it; the writable one is as before, but for the seals.
        """
        if nbytes is not None and nbytes < self.nbytes:
            os.ftruncate(self.fd, nbytes)
            self.nbytes = nbytes
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | _F_SEAL_SHRINK | _F_SEAL_GROW)
        try:
            return Block(_affordable(os.dup(self.fd)), self.nbytes, writable=False)
        except OSError as error:
            raise _no_room(error, self.nbytes) from error

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The whole block as a tensor of ``shape`` over the same memory; it keeps the mapping alive."""
        import torch

        with warnings.catch_warnings():
            # torch warns that a read-only buffer must not be written: sealed memory is never written.
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            return torch.frombuffer(self._map, dtype=dtype).view(shape)


class PayloadAllocator:
    """Hands out payloads ``[layers, 2, kv_heads, n_tokens, head_dim]`` in blocks, and finds the block of a payload.

    One allocator serves one piece of work; blocks that are not claimed are freed with it.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = (layers, 2, kv_heads, head_dim)
        self._dtype = dtype
        self._device = device
        self._blocks: dict[int, Block] = {}

    def __call__(self, n_tokens: int) -> torch.Tensor:
        """A writable payload for ``n_tokens`` ≥ 1 tokens."""
        import torch

        layers, two, heads, dim = self._shape
        shape = (layers, two, heads, n_tokens, dim)
        if self._device.type != "cpu" or not available():
            return torch.empty(shape, dtype=self._dtype, device=self._device)
        block = Block.create(layers * two * heads * n_tokens * dim * self._dtype.itemsize)
        payload = block.tensor(shape, self._dtype)
        self._blocks[payload.data_ptr()] = block
        return payload

    def seal(self, payload: torch.Tensor) -> tuple[torch.Tensor, Block | None]:
        """The payload read-only and its sealed block; payloads that lie in no block come back as they are, with None.

        A payload that is shorter than its block leaves no more of it than it needs.
        """
        block = self._blocks.pop(payload.data_ptr(), None)
        if block is None:
            return payload, None
        sealed = block.sealed(payload.nbytes)
        return sealed.tensor(tuple(payload.shape), payload.dtype), sealed


def map_offer(block: Block) -> dict[str, int]:
    """What another process of this host needs to map ``block``: valid while this process holds it."""
    return {"pid": own_pid(), "fd": block.fd, "inode": block.inode, "nbytes": block.nbytes}


def raise_descriptor_limit() -> None:
    """Let this process hold as many descriptors as the system allows: every segment takes two, its own and its mapping's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft < wanted and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _affordable(fd: int) -> int:
    """``fd``, or the system's own error where it is one of the last :data:`KEPT_DESCRIPTORS`: the lowest go first."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and fd >= limit - KEPT_DESCRIPTORS:
        os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return fd


def _no_room(error: OSError, nbytes: int) -> Exception:
    if error.errno in _NO_MEMORY:
        return NoRoom(
            f"no room for a segment of {nbytes / 2**20:.1f} MiB of shared memory: {error.strerror}",
            hint="evict states, lower kv_budget, or raise the process's limits (ulimit -n, container memory)",
            need_bytes=nbytes,
        )
    return TransferFailed(f"shared memory of {nbytes} bytes could not be made: {error}", hint="see the worker's log")
