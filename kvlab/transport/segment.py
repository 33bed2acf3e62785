"""The segment as data: a payload and a small header. The whole result of one Dask task, never part of a larger one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import xxhash

from kvlab.errors import ChecksumMismatch, TransferFailed
from kvlab.state.identity import LAYOUT

if TYPE_CHECKING:
    import torch

    from kvlab.transport.memory import Block


@dataclass(frozen=True, slots=True)
class Header:
    """What travels beside the payload; also the whole answer of the ``meta`` task. Plain values only.

    ``checksum`` is xxh3-64 of the payload's bytes; ``kv_ids`` and ``generated`` are packed token ids, see
    :class:`kvlab.engine.protocol.Produced`. ``timing`` holds seconds and the ns clock readings of the work.
    """

    recipe: str
    shape: tuple[int, ...]
    dtype: str
    kv_ids: bytes
    n_prompt: int
    generated: bytes = b""
    finish: str = "prefill"
    checksum: str = ""
    timing: dict[str, Any] = field(default_factory=dict)
    layout: str = LAYOUT


class Segment:
    """K/V of consecutive tokens: ``payload`` ``[layers, 2, kv_heads, tokens, head_dim]``, never changed after it is made.

    Attributes
    ----------
    header
        What it is.
    block
        The sealed shared memory under the payload, or None (device memory, or bytes that arrived as frames).
    arrived
        ``"computed"``, ``"map"``, ``"transfer"`` or ``"restored"``: how this copy came to be here.
    seconds
        How long it was on its way, from the sender's clock to the receiver's; 0 for one that was made here.
    failure
        Why there is no payload, when a transfer could not deliver it; :meth:`tensor` then raises.
    """

    __slots__ = ("__weakref__", "_payload", "_verified", "arrived", "block", "failure", "header", "seconds")

    def __init__(
        self,
        header: Header,
        payload: torch.Tensor | None,
        *,
        block: Block | None = None,
        arrived: str = "computed",
        failure: str = "",
        seconds: float = 0.0,
    ) -> None:
        self.header = header
        self._payload = payload
        self.block = block
        self.arrived = arrived
        self.failure = failure
        self.seconds = seconds
        self._verified = arrived != "transfer"

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return 0 if self._payload is None else self._payload.nbytes

    @property
    def made_ns(self) -> int:
        """When its making ended, by the clock of where that was: copies of one making have one number. 0 if nobody said."""
        return int(self.header.timing.get("finished_ns", 0))

    @property
    def making_seconds(self) -> float:
        """How long the model computed it."""
        timing = self.header.timing
        return float(timing.get("prefill_seconds", 0.0) + timing.get("decode_seconds", 0.0))

    def tensor(self) -> torch.Tensor:
        """The payload, checked once against its checksum if it crossed a wire. Valid as long as anyone holds it.

        Raises
        ------
        TransferFailed
            When it did not arrive.
        ChecksumMismatch
            When what arrived is not what was sent.
        """
        if self._payload is None:
            raise TransferFailed(
                f"segment {self.header.recipe[:12]} did not arrive: {self.failure}",
                hint="the run falls back to recomputing it; if this happens often, look at the workers' logs",
                recipe=self.header.recipe,
            )
        if not self._verified:
            found = checksum(self._payload)
            if found != self.header.checksum:
                raise ChecksumMismatch(
                    f"segment {self.header.recipe[:12]} arrived with checksum {found}, sent as {self.header.checksum}",
                    hint="the copy is dropped and made again; if it happens again, suspect memory or network",
                    recipe=self.header.recipe,
                )
            self._verified = True
        return self._payload

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a kvlab segment must be the whole result of a task: it was found inside a list, dict or other object, "
            "or is being pickled. Return it alone and let tasks depend on it."
        )

    def __repr__(self) -> str:
        tokens = self.header.shape[3]
        return f"<Segment {self.header.recipe[:12]} {tokens} tokens, {self.nbytes / 2**20:.1f} MiB, {self.arrived}>"


def undelivered(recipe: str, why: str) -> Segment:
    """A segment of which nothing arrived, not even what it is: :meth:`Segment.tensor` raises, saying ``why``."""
    return Segment(Header(recipe, (0, 0, 0, 0, 0), "", b"", 0), None, failure=why)


class Bundle:
    """The segments of siblings that were computed as one batch. Stays on its worker; each is picked under its own key."""

    __slots__ = ("segments",)

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments

    @property
    def nbytes(self) -> int:
        """Bytes of all payloads."""
        return sum(segment.nbytes for segment in self.segments)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bundle of siblings does not travel: depend on pick(bundle, i)")


def as_bytes(payload: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor where they lie, without numpy's dtypes (bfloat16 has none)."""
    import torch

    raw: Any = payload.reshape(-1).view(torch.uint8).numpy()
    return memoryview(raw)


def checksum(payload: torch.Tensor) -> str:
    """xxh3-64 of the payload's bytes (device payloads are read through host memory)."""
    host: Any = payload.cpu() if payload.device.type != "cpu" else payload
    return xxhash.xxh3_64_hexdigest(as_bytes(host.contiguous()))
