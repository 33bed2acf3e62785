"""K/V payloads on disk: one safetensors file a segment, and a page that says what they must be.

Written as draft, flushed, digested, published by one rename, in that order: a folder that is there is whole. Every byte
is compared with its digest before it is used. Never pickle.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import xxhash

from kvlab.errors import ChecksumMismatch, InvalidInput, RunUnreadable
from kvlab.state.identity import LAYOUT, canonical_json
from kvlab.store.room import is_full, no_room

if TYPE_CHECKING:
    import torch

PAGE = "payloads.json"
FORMAT_VERSION = 1
_KEY = "kv"
_PIECE = 16 << 20
_SAFETENSORS_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def save_payloads(folder: str | os.PathLike[str], payloads: Sequence[torch.Tensor], metadata: dict[str, Any]) -> int:
    """Write payloads and what is known of them to a new ``folder``, and return the bytes it takes.

    Parameters
    ----------
    folder
        Must not exist. It appears when everything in it is on the disk, or not at all.
    payloads
        ``[layers, 2, kv_heads, tokens, head_dim]`` each, in the order of the path; read, never changed.
    metadata
        JSON; comes back from :func:`load_payloads` as it is. Whose K/V it is belongs here.

    Raises
    ------
    InvalidInput
        If the folder exists, the metadata is not JSON, or a payload's dtype is none of fp32, fp16, bf16.
    NoRoom
        If the disk is full; nothing is left behind.
    """
    target = Path(folder)
    if target.exists():
        raise InvalidInput(
            f"{target} exists; saved states are never written over", hint="remove it or take another name"
        )
    draft = target.with_name(f"{_draft_prefix(target)}{uuid.uuid4().hex}")
    page: dict[str, Any] = {"format_version": FORMAT_VERSION, "layout": LAYOUT, "metadata": metadata, "segments": []}
    _json(page)
    draft.mkdir(mode=0o700, parents=True)
    try:
        for index, payload in enumerate(payloads):
            name = f"segment-{index:05d}.safetensors"
            with (draft / name).open("wb") as segment:
                page["segments"].append({"file": name, **write_payload(segment, payload)})
        with (draft / PAGE).open("w", encoding="utf-8") as file:
            file.write(_json({**page, "xxh3_128": _digest(json.loads(_json(page)))}))
            file.flush()
            os.fsync(file.fileno())
        nbytes = sum(file.stat().st_size for file in draft.iterdir())
        draft.rename(target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if not is_full(error):
            raise
        need = sum(payload.numel() * payload.element_size() for payload in payloads)
        hint = "free space, or evict instead of saving"
        raise no_room(target, need, kept="nothing is left behind", hint=hint) from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return nbytes


def drafts_of(folder: str | os.PathLike[str]) -> list[Path]:
    """What was being written for ``folder`` and never published: by others now, or by a process that was killed."""
    target = Path(folder)
    prefix = _draft_prefix(target)
    return [found for found in target.parent.iterdir() if found.name.startswith(prefix)]


def _draft_prefix(target: Path) -> str:
    return f".{target.name}.draft-"


def load_payloads(folder: str | os.PathLike[str]) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """The payloads and metadata that were saved to ``folder``. Changes nothing.

    Raises
    ------
    RunUnreadable
        If the folder or a file is missing or cut off, its page is damaged, or its layout or version is unknown.
    ChecksumMismatch
        If the bytes of a segment are not those that were written.
    """
    source = Path(folder)
    page = _page(source)
    return [_load(source, told) for told in page["segments"]], page["metadata"]


def load_payload(folder: str | os.PathLike[str], index: int) -> torch.Tensor:
    """The payload number ``index`` of a folder, checked. Raises as :func:`load_payloads` does."""
    source = Path(folder)
    return _load(source, _page(source)["segments"][index])


def load_metadata(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The metadata of a folder, without reading its payloads. Raises as :func:`load_payloads` does."""
    metadata: dict[str, Any] = _page(Path(folder))["metadata"]
    return metadata


def _load(source: Path, told: dict[str, Any]) -> torch.Tensor:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if Path(told["file"]).name != told["file"]:
        raise RunUnreadable(f"{source} names {told['file']!r}, which is not in it", hint="load what kvlab saved")
    file = source / told["file"]
    _check(file, told)
    try:
        payload: torch.Tensor = load_file(file)[_KEY]
    except (SafetensorError, KeyError) as error:
        raise RunUnreadable(f"{file} is not a payload: {error}", hint="evict it and let it be recomputed") from error
    return payload


def write_payload(file: BinaryIO, payload: torch.Tensor, *, durable: bool = True) -> dict[str, Any]:
    """Write one payload as safetensors into an empty ``file`` and return what it must be.

    ``durable`` waits until it is on the disk.

    Raises
    ------
    InvalidInput
        For a dtype that is none of fp32, fp16, bf16.
    """
    dtype = str(payload.dtype).removeprefix("torch.")
    if dtype not in _SAFETENSORS_DTYPES:
        known = ", ".join(_SAFETENSORS_DTYPES)
        raise InvalidInput(f"a payload of {dtype} cannot be saved", hint=f"payloads are {known}", dtype=dtype)
    whole = payload.detach().cpu().contiguous()
    nbytes = whole.numel() * whole.element_size()
    shape = list(whole.shape)
    entry = {_KEY: {"dtype": _SAFETENSORS_DTYPES[dtype], "shape": shape, "data_offsets": [0, nbytes]}}
    header = json.dumps(entry).encode()
    header += b" " * (-len(header) % 8)
    digest = xxhash.xxh3_128()
    pieces: list[bytes | memoryview] = [struct.pack("<Q", len(header)), header, *_pieces(whole, nbytes)]
    for piece in pieces:
        digest.update(piece)
        file.write(piece)
    file.flush()
    if durable:
        os.fsync(file.fileno())
    return {"nbytes": file.tell(), "xxh3_128": digest.hexdigest(), "shape": shape, "dtype": dtype}


def _pieces(tensor: torch.Tensor, nbytes: int) -> list[memoryview]:
    """The tensor's own memory, in slices; ``tensor`` must outlive them."""
    if nbytes == 0:
        return []
    view = memoryview((ctypes.c_char * nbytes).from_address(tensor.data_ptr())).cast("B")
    return [view[start : start + _PIECE] for start in range(0, nbytes, _PIECE)]


def _json(page: dict[str, Any]) -> str:
    try:
        return json.dumps(page, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"metadata of saved payloads is not JSON: {error}", hint="plain numbers, strings, lists"
        ) from error


def _page(folder: Path) -> dict[str, Any]:
    file = folder / PAGE
    try:
        page = dict(json.loads(file.read_text(encoding="utf-8")))
        digest, version, layout = page.pop("xxh3_128"), page["format_version"], page["layout"]
    except OSError as error:
        raise RunUnreadable(f"{folder} holds no saved payloads: {error.strerror}", hint="check the path") from error
    except (ValueError, KeyError) as error:
        raise RunUnreadable(f"{file} is damaged: {error}", hint="evict it and let it be recomputed") from error
    if version != FORMAT_VERSION or layout != LAYOUT:
        raise RunUnreadable(
            f"{folder} has version {version} and layout {layout!r}; this kvlab knows {FORMAT_VERSION} and {LAYOUT!r}",
            hint="recompute the state, or load it with the kvlab that saved it",
            layout=layout,
        )
    if digest != _digest(page):
        raise ChecksumMismatch(
            f"{file} does not say what was written", hint="evict it and let it be recomputed", path=str(file)
        )
    return page


def _digest(page: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(canonical_json(page).encode())


def _check(file: Path, told: dict[str, Any]) -> None:
    digest = xxhash.xxh3_128()
    try:
        size = file.stat().st_size
        if size != told["nbytes"]:
            raise RunUnreadable(
                f"{file} has {size} bytes of {told['nbytes']}: cut off or overwritten",
                hint="evict it and let it be recomputed",
                path=str(file),
            )
        with file.open("rb") as opened:
            while piece := opened.read(_PIECE):
                digest.update(piece)
    except OSError as error:
        raise RunUnreadable(f"{file} cannot be read: {error.strerror}", hint="evict it and recompute") from error
    if digest.hexdigest() != told["xxh3_128"]:
        raise ChecksumMismatch(
            f"the bytes of {file} are not the bytes that were written (xxh3_128 {digest.hexdigest()}, "
            f"expected {told['xxh3_128']})",
            hint="evict it and let it be recomputed; check the disk",
            path=str(file),
        )
