"""The immutable records of segments and states, S_KV = (M, Θ, B, Π, Λ, Γ).

Γ (who holds replicas, pins, references) changes, so it lives in the catalog and not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.state.tokens import n_ids

Operator = Literal["materialize", "resume", "fork", "merge", "truncate", "transfer", "load"]


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """K/V of consecutive tokens, made by one prefill or one generation on top of ``parent``.

    Attributes
    ----------
    recipe
        Names the segment (and, with a generation number, its Dask key).
    parent
        Recipe of the segment below, or None at the root.
    start
        Position of the first token.
    token_ids
        Packed ids of the tokens that have K/V here.
    n_prompt
        How many of them were given; the rest were generated.
    nbytes
        Bytes of one copy.
    """

    recipe: str
    parent: str | None
    start: int
    token_ids: bytes
    n_prompt: int
    nbytes: int

    @property
    def n_tokens(self) -> int:
        """Tokens with K/V in this segment."""
        return n_ids(self.token_ids)

    @property
    def end(self) -> int:
        """Position after the last token."""
        return self.start + self.n_tokens


@dataclass(frozen=True, slots=True)
class Lineage:
    """Λ: how a state came to be. ``exact`` is False as soon as any ancestor was approximate."""

    operator: Operator
    parents: tuple[str, ...] = ()
    exact: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A path of segments from the root.

    ``unfed`` holds the ids that belong to the text but have no K/V yet: the last sampled token of a generation,
    until the next turn feeds it. ``conversation`` says whether the path was written by the chat template.
    """

    id: str
    name: str
    model: ModelIdentity
    config: KVConfig
    namespace: str
    segments: tuple[SegmentRecord, ...]
    lineage: Lineage
    identity: str
    unfed: bytes = b""
    conversation: bool = False

    @property
    def n_tokens(self) -> int:
        """Tokens with K/V, from the root."""
        return self.segments[-1].end if self.segments else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the whole path, shared segments included."""
        return sum(segment.nbytes for segment in self.segments)

    @property
    def path_ids(self) -> bytes:
        """Packed ids of every token with K/V, from the root."""
        return b"".join(segment.token_ids for segment in self.segments)
