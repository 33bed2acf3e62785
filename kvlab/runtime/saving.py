"""A state's record as the metadata of its folder on disk, and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.state.records import StateRecord


@dataclass(frozen=True, slots=True)
class SavedSegment:
    """One payload of a saved path."""

    start: int
    token_ids: bytes
    n_prompt: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a folder says of its state, before any byte of K/V is read."""

    name: str
    model: ModelIdentity
    config: KVConfig
    identity: str
    segments: tuple[SavedSegment, ...]
    unfed: bytes
    conversation: bool


def metadata_of(record: StateRecord) -> dict[str, Any]:
    """Plain values that say everything of a state but its bytes and its place in a lab."""
    return {
        "name": record.name,
        "model": asdict(record.model),
        "config": asdict(record.config),
        "identity": record.identity,
        "unfed": record.unfed.hex(),
        "conversation": record.conversation,
        "segments": [
            {"start": s.start, "token_ids": s.token_ids.hex(), "n_prompt": s.n_prompt, "nbytes": s.nbytes}
            for s in record.segments
        ],
    }


def read_metadata(folder: Path) -> SavedState:
    """What the state saved in ``folder`` is.

    Raises
    ------
    RunUnreadable, ChecksumMismatch
        As :func:`kvlab.store.tensors.read_tensor_metadata`.
    """
    from kvlab.store.tensors import load_metadata

    stored = load_metadata(folder)
    return SavedState(
        name=stored["name"],
        model=ModelIdentity(**stored["model"]),
        config=KVConfig(**stored["config"]),
        identity=stored["identity"],
        segments=tuple(
            SavedSegment(s["start"], bytes.fromhex(s["token_ids"]), s["n_prompt"], s["nbytes"])
            for s in stored["segments"]
        ),
        unfed=bytes.fromhex(stored["unfed"]),
        conversation=stored["conversation"],
    )
