"""The cost model: a prefill curve, a decode curve and a line per link, all measured on this machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

NEVER = 2**31 - 1
"""More tokens than any model has positions for."""

NOISE_SECONDS = 0.01
"""What a task's round trip varies by."""

DISK = "disk"
"""Where a link starts whose bytes were spilled."""

TINY = 1e-15
"""Seconds a byte below which a link counts as having no limit."""


@dataclass(frozen=True, slots=True)
class PrefillCurve:
    """Seconds to prefill n tokens on a past of p: ``a + b·n + c·n·(p + n/2)``. Convex, because attention is quadratic.

    ``threads`` is the number of threads it was measured with.
    """

    a: float
    b: float
    c: float
    threads: int

    def seconds(self, n_tokens: int, past: int = 0, threads: int | None = None) -> float:
        """Predicted seconds; work is taken to scale with threads, the constant not."""
        if n_tokens <= 0:
            return 0.0
        scale = self.threads / threads if threads else 1.0
        return self.a + scale * (self.b * n_tokens + self.c * n_tokens * (past + n_tokens / 2))

    @classmethod
    def fit(cls, points: Sequence[tuple[int, int, float]], threads: int) -> PrefillCurve:
        """Least squares on relative error through (n_tokens, past, seconds) under coefficients ≥ 0."""
        rows = np.array([[1.0, n, n * (past + n / 2)] for n, past, _ in points])
        seconds = np.array([s for _, _, s in points])
        a, b, c = (float(value) for value in _nonnegative(rows / seconds[:, None], np.ones(len(seconds))))
        return cls(a, b, c, threads)


@dataclass(frozen=True, slots=True)
class DecodeCurve:
    """Seconds of one decode step of n branches on a past of p tokens: ``step + branch·(n − 1) + past·p``.

    ``threads`` is the number of threads it was measured with.
    """

    step: float
    branch: float = 0.0
    past: float = 0.0
    threads: int = 1

    def seconds(self, n_steps: int, n_branches: int = 1, past: int = 0, threads: int | None = None) -> float:
        """Predicted seconds of ``n_steps`` steps.

        Fewer threads mean that a neighbour has the others, and with them its share of the memory's bandwidth: taken to
        scale as arithmetic does.
        """
        scale = self.threads / threads if threads else 1.0
        return scale * n_steps * (self.step + self.branch * (n_branches - 1) + self.past * past)


@dataclass(frozen=True, slots=True)
class Link:
    """A way for bytes: ``t0 + bytes / bytes_per_second`` seconds, checksum at both ends included.

    ``cold`` is what the first message of a connection takes longer.
    """

    t0: float
    bytes_per_second: float
    cold: float = 0.0

    def seconds(self, nbytes: int) -> float:
        """Predicted seconds for ``nbytes`` bytes over a connection that is open."""
        return self.t0 + nbytes / self.bytes_per_second

    @classmethod
    def fit(cls, points: Sequence[tuple[int, float]], cold: float = 0.0) -> Link:
        """The line through (bytes, seconds) of least squares, with both coefficients ≥ 0.

        Errors are relative, but for what is shorter than :data:`NOISE_SECONDS`, which a busy machine's noise would decide.

        Raises
        ------
        ValueError
            For fewer than two different sizes.
        """
        if len({nbytes for nbytes, _ in points}) < 2:
            msg = "a link needs measurements of two sizes"
            raise ValueError(msg)
        seconds = np.array([s for _, s in points])
        scale = np.maximum(seconds, NOISE_SECONDS)
        rows = np.array([[1.0, nbytes] for nbytes, _ in points]) / scale[:, None]
        t0, per_byte = _nonnegative(rows, seconds / scale)
        return cls(float(t0), 1.0 / max(float(per_byte), TINY), cold)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Everything measured at calibration.

    Attributes
    ----------
    prefill, decode
        Curves of the model on this machine.
    frames
        Bytes between two workers whose pair was not measured by itself.
    map_seconds
        What it adds to a task that a segment lies on another worker: mapping it, or a link's ``t0`` where nothing is mapped.
    task_seconds
        Round trip of an empty task.
    links
        Measured pairs, by :func:`link_name`.
    copy_bytes_per_second
        Cutting a segment in two and putting one together: one pass over its bytes in memory.
    receive_seconds_per_byte
        By how much a byte that arrives slows a prefill on the receiver: they share its cores.
    measured_at
        ISO 8601, UTC.
    disk
        Reading back what was spilled, its digest included; None where nothing is spilled.
    """

    prefill: PrefillCurve
    decode: DecodeCurve
    frames: Link
    map_seconds: float
    task_seconds: float
    links: Mapping[str, Link] = field(default_factory=dict)
    copy_bytes_per_second: float = math.inf
    receive_seconds_per_byte: float = 0.0
    measured_at: str = ""
    disk: Link | None = None

    def link(self, source: str, target: str) -> Link:
        """The link from one worker, or from :data:`DISK`, to another worker."""
        known = self.links.get(link_name(source, target))
        return known or (self.disk if source == DISK and self.disk is not None else self.frames)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for storage."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> CostModel:
        """The inverse of :meth:`as_dict`."""
        rest = dict(stored)
        if rest.get("disk") is not None:
            rest["disk"] = Link(**rest["disk"])
        return cls(
            prefill=PrefillCurve(**rest.pop("prefill")),
            decode=DecodeCurve(**rest.pop("decode")),
            frames=Link(**rest.pop("frames")),
            links={name: Link(**link) for name, link in rest.pop("links").items()},
            **rest,
        )

    def break_even_bytes_per_second(self, n_tokens: int, bytes_per_token: int, threads: int | None = None) -> float:
        """Rate of a link over which ``n_tokens`` tokens arrive just when they would have been prefilled again.

        From T_transfer = T_prefill, with the frames' own t0 and the model's constant. 0 where moving cannot lose.
        """
        spare = self.prefill.seconds(n_tokens, 0, threads) - self.frames.t0
        return n_tokens * bytes_per_token / spare if spare > 0 else 0.0

    def tokens_worth_a_task(self) -> int:
        """The shortest prefix worth a task of its own: prefilling it once more costs more than another task does.

        Another task pays a round trip and the constant of one more prefill; feeding n tokens to one more agent pays
        only ``b·n + c·n²/2``. Where that is nothing, no prefix is: :data:`NEVER`.
        """
        b, c = self.prefill.b, self.prefill.c
        task = self.task_seconds + self.map_seconds + self.prefill.a
        if task > 0 and b == c == 0:
            return NEVER
        # The positive root of c·n²/2 + b·n = task, in the form that does not cancel where c is small.
        root = 2 * task / (b + math.sqrt(b * b + 2 * c * task)) if task > 0 else 0.0
        return max(1, min(NEVER, math.ceil(root)))


def link_name(source: str, target: str) -> str:
    """How the link from one worker to another is called: ``w0→w1``."""
    return f"{source}→{target}"


def _nonnegative(rows: Any, wanted: Any) -> Any:
    """Coefficients ≥ 0 whose sum over each row is nearest to what is wanted of it, in the sense of least squares.

    The best of all choices of coefficients that are not 0: what is found without bounds in the right one is the answer
    under bounds (https://en.wikipedia.org/wiki/Non-negative_least_squares).
    """
    n_columns = rows.shape[1]
    best, least = np.zeros(n_columns), float((wanted**2).sum())
    for size in range(n_columns, 0, -1):
        for active in itertools.combinations(range(n_columns), size):
            found, *_ = np.linalg.lstsq(rows[:, active], wanted, rcond=None)
            error = float(((rows[:, active] @ found - wanted) ** 2).sum())
            if (found >= 0).all() and error < least:
                best, least = np.zeros(n_columns), error
                best[list(active)] = found
    return best
