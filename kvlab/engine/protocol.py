"""What kvlab asks of an engine, and so what a serving engine would have to offer to carry kvlab's states.

An engine turns token ids and *past payloads* into new payloads and tokens. It knows nothing of Dask, shared memory,
workflows or catalogs. A payload is one contiguous tensor ``[layers, 2, kv_heads, tokens, head_dim]`` (index 0 of the
second axis is K after RoPE, index 1 is V). ``past`` is always the list of payloads of a path from the root, in order;
they are read where they lie and never changed, copied or concatenated.

To carry kvlab's states, a serving engine must be able to

1. write K/V of given tokens into memory that the caller hands it (``allocate``),
2. attend to several separate pieces of past K/V that the caller hands it, without copying them,
3. say when each piece of work began and ended, and stop between pieces when asked,
4. draw tokens as a function of (seed, branch, position) alone,
5. run a given span of layers on given hidden rows at given positions (for correction methods).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvlab.state.identity import KVConfig, ModelIdentity, Sampling

if TYPE_CHECKING:
    import torch

Allocate = Callable[[int], "torch.Tensor"]
"""Gives the writable payload ``[layers, 2, kv_heads, n_tokens, head_dim]`` for ``n_tokens`` new tokens."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One continuation to compute.

    Attributes
    ----------
    ids
        Packed int32 ids to feed, at least one. They follow directly on the past.
    sampling
        How to go on after them. ``max_new_tokens`` 0 only prefills.
    stop_ids
        A sampled id among these ends the branch; it is returned but never fed.
    """

    ids: bytes
    sampling: Sampling
    stop_ids: frozenset[int] = frozenset()


@dataclass(slots=True)
class Produced:
    """What one branch came to.

    Attributes
    ----------
    payload
        ``[layers, 2, kv_heads, n, head_dim]`` with n = fed prompt tokens + generated tokens that were fed. It was
        obtained from ``allocate``, holds exactly these tokens, and belongs to the caller.
    kv_ids
        Packed ids of those n tokens.
    generated
        Packed ids of all sampled tokens. The last one has no K/V yet, so it is not in ``kv_ids``.
    finish
        ``"stop"``, ``"length"``, or ``"prefill"`` when nothing was to be generated.
    last_logits
        ``[vocabulary]`` fp32 logits after the last fed prompt token.
    prefill_seconds, decode_seconds
        Measured compute time; for packed siblings, of the whole batch.
    first_token_at
        ``time.time_ns()`` when the first token was known (or when the prefill ended).
    """

    payload: torch.Tensor
    kv_ids: bytes
    generated: bytes
    finish: str
    last_logits: torch.Tensor
    prefill_seconds: float
    decode_seconds: float
    first_token_at: int


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks during one piece of work; each is called on the computing thread and must return quickly.

    ``on_chunk(done, total)`` after each prefill chunk, ``on_token(branch_index, token_id)`` for each sampled token,
    ``cancelled()`` between chunks and between decode steps: True raises :class:`kvlab.errors.Cancelled`.
    """

    on_chunk: Callable[[int, int], None] = lambda _done, _total: None
    on_token: Callable[[int, int], None] = lambda _branch, _token: None
    cancelled: Callable[[], bool] = lambda: False


class Engine(Protocol):
    """A loaded model that computes on states. Thread-safe: calls share no mutable state but the weights."""

    @property
    def identity(self) -> ModelIdentity:
        """M of every state made here."""

    @property
    def config(self) -> KVConfig:
        """Θ of every state made here."""

    def prefill(
        self,
        ids: bytes,
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener = Listener(),
        chunk: int = 1024,
    ) -> Produced:
        """Compute K/V of ``ids`` on top of ``past``. Changes only the payload it allocates."""

    def resume(
        self,
        branch: Branch,
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener = Listener(),
        chunk: int = 1024,
    ) -> Produced:
        """Prefill ``branch.ids`` on top of ``past`` and generate. Forwards exactly ``branch.ids`` plus what it samples."""

    def decode_batch(
        self,
        branches: Sequence[Branch],
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener = Listener(),
    ) -> list[Produced]:
        """As :meth:`resume` for siblings on one past, packed into one batch.

        Branches may differ in prompt length and limits; each result equals that of its own :meth:`resume`.
        """

    def partial_forward(
        self,
        hidden_or_ids: torch.Tensor,
        positions: torch.Tensor,
        layers: range,
        cache: torch.Tensor,
    ) -> torch.Tensor:
        """Run ``layers`` on chosen rows of a sequence, scattering their K/V into ``cache`` in place.

        Parameters
        ----------
        hidden_or_ids
            ``[n]`` token ids if ``layers`` starts at 0, else ``[n, hidden]`` hidden rows.
        positions
            ``[n]`` int64 true positions of the rows, ascending, each ``< cache.shape[3]``.
        cache
            ``[layers, 2, kv_heads, tokens, head_dim]``; rows attend to cache columns at positions ≤ their own.

        Returns
        -------
        ``[n, hidden]`` hidden rows after the last layer of ``layers`` (before the final norm), or ``[n, vocabulary]``
        logits when ``layers`` ends at the last layer.
        """
