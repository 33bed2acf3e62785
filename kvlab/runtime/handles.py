"""What a person holds in a cell: a state, and what came of resuming it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvlab.errors import InvalidInput
from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.state.records import Lineage, StateRecord
from kvlab.state.tokens import unpack_ids

if TYPE_CHECKING:
    from pathlib import Path

    from kvlab.cost.decide import Decision
    from kvlab.runtime.verbs import Verbs


class KVState:
    """The K/V of a text on the workers of a lab: S_KV = (M, Θ, B, Π, Λ, Γ). Never changes; a resume gives a new one.

    The bytes live as long as a handle (or a state that continues this one) does. All verbs block until they are done.
    """

    def __init__(self, verbs: Verbs, record: StateRecord) -> None:
        self._verbs = verbs
        self._record = record
        catalog = verbs.core.catalog
        catalog.hold(record.id)
        weakref.finalize(self, catalog.handle_died, record.id)

    # -- what it is

    @property
    def id(self) -> str:
        """Its name in its lab, e.g. ``"s12"``."""
        return self._record.id

    @property
    def record(self) -> StateRecord:
        """M, Θ, B, Π and Λ: immutable."""
        return self._record

    @property
    def model(self) -> ModelIdentity:
        """M."""
        return self._record.model

    @property
    def config(self) -> KVConfig:
        """Θ."""
        return self._record.config

    @property
    def lineage(self) -> Lineage:
        """Λ: parents, the operator that made it, exact or approximate."""
        return self._record.lineage

    @property
    def digest(self) -> str:
        """Identity: sha256 over model, configuration, namespace and every token id that has K/V."""
        return self._record.identity

    @property
    def n_tokens(self) -> int:
        """Tokens with K/V, from the root."""
        return self._record.n_tokens

    @property
    def nbytes(self) -> int:
        """Bytes of K/V of the whole path, shared segments included."""
        return self._record.nbytes

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids of the tokens with K/V."""
        return unpack_ids(self._record.path_ids)

    @property
    def text(self) -> str:
        """The text of the path, the last sampled token included, without control tokens."""
        return self._verbs.core.tokenizer.decode(self._record.path_ids + self._record.unfed)

    @property
    def phase(self) -> str:
        """Where it is in its life: resident, evicted and so on."""
        return str(self._verbs.core.catalog.entry(self.id).phase)

    @property
    def workers(self) -> tuple[str, ...]:
        """Workers that have all of it."""
        return self._verbs.workers_of(self._record)

    # -- verbs

    def fork(self, n: int = 2) -> tuple[KVState, ...]:
        """``n`` independent continuations of this state. Allocates no K/V; equal seeds draw differently in each fork."""
        return self._verbs.fork(self, n)

    def resume(
        self,
        text: str,
        *,
        max_new_tokens: int = 16,
        temperature: float = 0.0,
        seed: int = 0,
        chat: bool = False,
        worker: str | None = None,
        how: str | None = None,
    ) -> Generation:
        """Feed ``text`` on top of this state and generate. This state stays as it is.

        Parameters
        ----------
        text
            Raw text; with ``chat=True`` the user's next turn under the model's chat template.
        max_new_tokens
            At most so many; generation also ends at the model's stop tokens.
        temperature, seed
            0 is greedy. Draws depend on (seed, fork, position) alone.
        worker
            Name of a worker; None lets the cheapest road decide.
        how
            Force a road: ``"in place"``, ``"map"``, ``"transfer"``, ``"restore"``, ``"hybrid"`` or
            ``"recompute"``.

        Raises
        ------
        InvalidInput
            For a road that is not open, naming those that are.
        """
        return self._verbs.resume(
            self,
            text,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            chat=chat,
            worker=worker,
            how=how,
        )

    def transfer(self, worker: str, *, keep: bool = False) -> KVState:
        """Move this state to ``worker``: mapped on the same host, else its bytes; never recomputed.

        Copies that no other state needs elsewhere are given up afterwards, unless ``keep``. Returns this state.
        """
        return self._verbs.transfer(self, worker, keep=keep)

    def truncate(self, n_tokens: int) -> KVState:
        """The state of the first ``n_tokens`` tokens, 0 < n ≤ length. Whole segments are shared, a cut one is copied."""
        return self._verbs.truncate(self, n_tokens)

    def evict(self, *, forget: bool = False) -> int:
        """Give back the K/V that no other state shares; returns the bytes. Using the state again recomputes it.

        With ``forget`` its lineage goes too, and using it raises :class:`kvlab.errors.StateGone`.
        """
        return self._verbs.evict(self, forget=forget)

    def spill(self) -> int:
        """Write the K/V that no other state shares to the lab's disk and give back its memory; returns the bytes.

        Used again, it comes back by the cheapest road: read from disk, its digest checked, or computed.

        Raises
        ------
        InvalidInput
            If it is pinned or leased, or the lab spills nothing.
        IllegalTransition
            If it is not in memory.
        NoRoom
            If the disk has no room for it; it stays in memory.
        """
        return self._verbs.spill(self)

    def lease(self, seconds: float) -> Lease:
        """Keep it resident for ``seconds``, however little room there is; after that it may be evicted again.

        Ends earlier with ``lease.release()``, or with the block of ``with state.lease(30):``. A state may have several
        leases, and the last to end counts.

        Raises
        ------
        InvalidInput
            For seconds that are no time.
        IllegalTransition
            If it is not in memory.
        """
        return self._verbs.lease(self, seconds)

    def pin(self) -> KVState:
        """Keep it resident: eviction is refused until :meth:`unpin`. Returns this state.

        Raises
        ------
        IllegalTransition
            If it is not in memory.
        """
        return self._verbs.pin(self, pinned=True)

    def unpin(self) -> KVState:
        """Allow eviction again. Returns this state."""
        return self._verbs.pin(self, pinned=False)

    def save(self, folder: str | Path) -> Path:
        """Write it to ``folder`` (made, must not exist): safetensors and metadata, digests inside, never pickle."""
        return self._verbs.save(self, folder)

    def next_logits(self) -> Any:
        """Logits of the next token, fp32 ``[vocabulary]``, as numpy. Read-only: the last token is fed once more."""
        return self._verbs.next_logits(self)

    def __getstate__(self) -> Any:
        raise InvalidInput(
            "a KVState is a handle of this lab and cannot be pickled", hint="state.save(folder) writes it"
        )

    def __repr__(self) -> str:
        from kvlab.display.handles import state_text

        return state_text(self)

    def _repr_html_(self) -> str:
        from kvlab.display.handles import state_html

        return state_html(self)


class Lease:
    """A promise that a state stays in memory until a deadline. Refers to the state, so it also keeps that alive."""

    def __init__(self, state: KVState, number: int) -> None:
        self.state = state
        self._number = number

    @property
    def seconds_left(self) -> float:
        """Until it ends; 0 if it is over."""
        return self.state._verbs.lease_seconds(self.state, self._number)  # noqa: SLF001 - handles of one module

    def release(self) -> None:
        """End it now. A lease that is over already is ignored."""
        self.state._verbs.end_lease(self.state, self._number)  # noqa: SLF001 - handles of one module

    def __enter__(self) -> KVState:
        return self.state

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<lease of {self.state.id}: {self.seconds_left:.1f} s left>"


@dataclass(frozen=True, slots=True)
class Generation:
    """What resuming a state came to.

    Attributes
    ----------
    text, token_ids
        What was generated; the ids include the stop token if there was one.
    state
        The new state; its last token is not fed yet.
    finish
        ``"stop"`` or ``"length"``.
    ttft_seconds
        Measured, from the call to the first token.
    how
        How the parent's K/V came to the worker: in place, map, transfer, restore, hybrid, recompute.
    n_prefilled, n_reused
        Tokens fed, tokens reused.
    decision
        All alternatives with their predicted terms, the chosen one and why.
    """

    text: str
    token_ids: tuple[int, ...]
    state: KVState
    finish: str
    ttft_seconds: float
    how: str
    n_prefilled: int
    n_reused: int
    decision: Decision = field(repr=False)

    def __str__(self) -> str:
        return self.text


def require_states(states: Any) -> list[KVState]:
    """``states`` as a list of handles of one living lab.

    Raises
    ------
    InvalidInput
        If it is empty or holds something else.
    """
    found = list(states)
    wrong = [item for item in found if not isinstance(item, KVState)]
    if not found or wrong:
        what = f"got {type(wrong[0]).__name__}" if wrong else "got none"
        raise InvalidInput(f"merge takes states of a lab, {what}", hint="kvlab.merge([a, b], how='prefix')")
    labs = {id(state._verbs) for state in found}  # noqa: SLF001 - handles of one module
    if len(labs) > 1:
        raise InvalidInput("the states belong to different labs", hint="save one and load it in the other lab")
    return found
