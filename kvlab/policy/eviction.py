"""What an eviction policy is told and what it answers. A policy only orders; whoever asked frees room, and says so.

A use of a state is a use of its whole path, so a piece of K/V is never wanted sooner than what it continues: every policy
lets the deeper of two pieces go first where it sees no other difference.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from kvlab.errors import InvalidInput

if TYPE_CHECKING:
    from kvlab.policy.shelves import Shelves

NEVER = float("inf")
"""The next use of what is known not to be used again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """K/V that may go: nobody uses it at the moment.

    Attributes
    ----------
    key
        Its name.
    nbytes
        What it takes.
    seconds
        That its tokens add to the computing of whoever uses it, where it is gone and what it continues still there.
    last_use
        Moment of its last use. Moments are counted, not timed: actions of a run, or requests of a trace.
    next_use
        Moment of its next use where that is known (:data:`NEVER` if there is none), None where nobody can know.
    parent
        Key of what it continues; None at a root.
    depth
        Pieces before it on its path.
    fixed_seconds
        What a prefill takes besides, however short it is.
    """

    key: str
    nbytes: int
    seconds: float
    last_use: int
    next_use: float | None = None
    parent: str | None = None
    depth: int = 0
    fixed_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Seconds that each of its bytes saves where it is used."""
        return self.seconds / self.nbytes


class EvictionPolicy(Protocol):
    """Orders candidates. May keep what it has seen; asks nobody.

    Attributes
    ----------
    ends_only
        Whether only ends of paths are compared: what another candidate continues goes after that one.
    """

    ends_only: ClassVar[bool]

    def used(self, key: str) -> None:
        """``key`` was made, brought back or used."""
        ...

    def gone(self, key: str, *, evicted: bool) -> None:
        """``key`` is not there any more: because this policy named it, or because nobody wants it."""
        ...

    def shelf(self, one: Candidate) -> Hashable:
        """Where a candidate is put: of those on one shelf the first in place goes first, at whatever moment."""
        ...

    def place(self, one: Candidate) -> tuple[float, ...]:
        """Its place there. Changes nothing."""
        ...

    def order(self, shelves: Shelves, now: int) -> Iterator[Candidate]:
        """Take those who should go, one after another, and yield each. Valid until one of them is used again."""
        ...


NAMES = ("lru", "arc", "workflow", "belady")


def eviction_policy(name: str) -> EvictionPolicy:
    """A new policy.

    Raises
    ------
    InvalidInput
        For an unknown name.
    """
    from kvlab.policy.arc import ARC
    from kvlab.policy.belady import Belady
    from kvlab.policy.lru import LRU
    from kvlab.policy.workflow_aware import WorkflowAware

    makers: dict[str, Callable[[], EvictionPolicy]] = {
        "lru": LRU,
        "arc": ARC,
        "workflow": WorkflowAware,
        "belady": Belady,
    }
    if name not in makers:
        raise InvalidInput(f"there is no eviction policy {name!r}", hint=f"one of: {', '.join(NAMES)}", name=name)
    return makers[name]()
