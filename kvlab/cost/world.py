"""What a decision sees: a state edge, and the workers with what lies on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvlab.cost.model import CostModel


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment of the state that the edge hands on."""

    recipe: str
    n_tokens: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A state edge about to be decided. ``path`` is the source's segments from the root; empty for a fresh start.

    ``new_tokens`` is the total over the ``n_branches`` branches that will be fed as one batch on top of the path, and
    ``n_steps`` the most tokens that one of them will generate.
    """

    id: str
    source: str
    target: str
    path: tuple[Piece, ...]
    new_tokens: int
    n_branches: int = 1
    n_steps: int = 0

    @property
    def n_tokens(self) -> int:
        """Tokens of the state."""
        return sum(piece.n_tokens for piece in self.path)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A candidate worker: the segments it holds, and how long until it is free."""

    name: str
    host: str
    resident: frozenset[str]
    queue_seconds: float = 0.0
    threads: int = 1


@dataclass(frozen=True, slots=True)
class View:
    """The world as a decision sees it.

    Attributes
    ----------
    workers
        All that are up: wherever a segment may lie.
    cost
        What was measured.
    mappable
        False when states cross between processes as frames.
    candidates
        Names of the workers that may be chosen; None: any.
    disk
        Recipes of the segments that any worker can read back from disk.
    link_queues
        Seconds until a link is free, by :func:`kvlab.cost.model.link_name`; links that are not named are free.
    """

    workers: tuple[WorkerView, ...]
    cost: CostModel
    mappable: bool = True
    candidates: frozenset[str] | None = None
    link_queues: Mapping[str, float] = field(default_factory=dict)
    disk: frozenset[str] = frozenset()
