"""K/V that left memory for a while: one safetensors file a segment, which lives as long as its lab at most.

What a file must be is kept in memory by whoever had it written, not on the disk: a file that was changed, cut off or
exchanged never passes for the one that was written. Nothing is forced to the disk, because nothing outlives its lab.

Who wants a file makes it, empty; a worker only fills it in, and to remove it is to want it no more. So nothing is left of
what was given up, also where a worker is still at it, or is told to do it again by a scheduler that lost its answer.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from kvlab.errors import ChecksumMismatch, TransferFailed
from kvlab.store.room import is_full, no_room
from kvlab.store.tensors import write_payload

if TYPE_CHECKING:
    from io import FileIO

    import torch

_PIECE = 16 << 20


@dataclass(frozen=True, slots=True)
class Spilled:
    """A segment's file: where it is, how long, and the digest (xxh3-128) of all its bytes."""

    path: str
    nbytes: int
    payload_nbytes: int
    xxh3_128: str
    shape: tuple[int, ...]


def spill(path: str, payload: torch.Tensor) -> Spilled:
    """Write ``payload`` ``[layers, 2, kv_heads, tokens, head_dim]`` into the file at ``path``, which is there already.

    Raises
    ------
    NoRoom
        If the disk is full; no part of the file is left.
    FileNotFoundError
        If it is wanted no more.
    OSError
        For any other trouble with the disk; no part of the file is left.
    """
    place = Path(path)
    try:
        with place.open("r+b") as file:
            file.truncate()
            told = write_payload(file, payload, durable=False)
    except OSError as error:
        place.unlink(missing_ok=True)
        if not is_full(error):
            raise
        hint = "free space, give Lab(spill_bytes=...) less, or turn it off with 0"
        raise no_room(place, payload.nbytes, kept="the state is forgotten instead", hint=hint) from error
    return Spilled(path, told["nbytes"], payload.nbytes, told["xxh3_128"], tuple(payload.shape))


def restore(recipe: str, spilled: Spilled, allocate: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """The payload of a spilled segment, read into the memory that ``allocate(n_tokens)`` gives and digested as it comes.

    Raises
    ------
    ChecksumMismatch
        If the file is not the one that was written, byte for byte; what was read of it is not used.
    TransferFailed
        If it cannot be read.
    """
    path, digest = Path(spilled.path), xxhash.xxh3_128()
    hint = "the file is given up and the state computed again; check the disk"
    about = {"recipe": recipe, "spilled": spilled.path}
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != spilled.nbytes:
                message = f"{path} has {size} bytes of {spilled.nbytes}: cut off or overwritten"
                raise ChecksumMismatch(message, hint=hint, **about)
            head = file.read(spilled.nbytes - spilled.payload_nbytes)
            digest.update(head)
            payload = allocate(spilled.shape[3])
            host = payload if payload.device.type == "cpu" else payload.new_empty(payload.shape, device="cpu")
            _fill(host, file, digest.update)
    except OSError as error:
        raise TransferFailed(
            f"{path} cannot be read: {error.strerror}", hint=hint, recipe=recipe, spilled=spilled.path
        ) from error
    if digest.hexdigest() != spilled.xxh3_128:
        found = digest.hexdigest()
        message = f"the bytes of {path} are not those that were written (xxh3_128 {found}, expected {spilled.xxh3_128})"
        raise ChecksumMismatch(message, hint=hint, **about)
    if host is not payload:
        payload.copy_(host)
    return payload


def _fill(payload: torch.Tensor, file: FileIO, seen: Callable[[memoryview], None]) -> None:
    """Read a payload's bytes where they shall lie; what is missing at the end shows in the digest."""
    whole = memoryview((ctypes.c_char * payload.nbytes).from_address(payload.data_ptr())).cast("B")
    start = 0
    while start < payload.nbytes:
        n_read = file.readinto(whole[start : start + _PIECE])
        if not n_read:
            return
        seen(whole[start : start + n_read])
        start += n_read
