"""The identity of weights and tokenizer, from the bytes in use."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

TOKENIZER_FILE = "tokenizer.json"


def weights_digest(model: torch.nn.Module) -> str:
    """sha256 over the sorted names and the bytes of every stored tensor in use; a tied tensor counts once.

    Tensors are digested one by one (on two threads, hashing releases the interpreter) and their digests joined.
    """
    tensors: dict[str, torch.Tensor] = {}
    seen = set()
    for name, tensor in sorted(model.state_dict().items()):
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if place not in seen:
            seen.add(place)
            tensors[name] = tensor
    with ThreadPoolExecutor(2) as pool:
        digests = pool.map(_tensor_digest, tensors.values())
        whole = hashlib.sha256()
        for (name, tensor), digest in zip(tensors.items(), digests, strict=True):
            whole.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
            whole.update(digest)
    return whole.hexdigest()


def _tensor_digest(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
    raw: Any = flat.numpy()
    return hashlib.sha256(raw).digest()


def tokenizer_digest(folder: Path) -> str:
    """sha256 of the bytes of ``tokenizer.json``, or "" where there is none."""
    file = folder / TOKENIZER_FILE
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
