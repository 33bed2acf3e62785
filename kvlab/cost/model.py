"""The cost model: a prefill curve, a decode curve and a line per link, all measured on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

NEVER = 2**31 - 1
"""More tokens than any model has positions for."""


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
        """Least squares on relative error through (n_tokens, past, seconds) under coefficients ≥ 0.

        The best of all choices of coefficients that are not 0: what is found without bounds in the right one is the
        answer under bounds (https://en.wikipedia.org/wiki/Non-negative_least_squares).
        """
        rows = np.array([[1.0, n, n * (past + n / 2)] for n, past, _ in points])
        seconds = np.array([s for _, _, s in points])
        relative = rows / seconds[:, None]
        best, least = np.zeros(3), float(len(points))
        for active in ([0, 1, 2], [0, 1], [0, 2], [1, 2], [0], [1], [2]):
            found, *_ = np.linalg.lstsq(relative[:, active], np.ones(len(points)), rcond=None)
            error = float(((relative[:, active] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least:
                best, least = np.zeros(3), error
                best[active] = found
        a, b, c = (float(value) for value in best)
        return cls(a, b, c, threads)


@dataclass(frozen=True, slots=True)
class Link:
    """A way for bytes: ``t0 + bytes / bytes_per_second`` seconds."""

    t0: float
    bytes_per_second: float

    def seconds(self, nbytes: int) -> float:
        """Predicted seconds for ``nbytes`` bytes."""
        return self.t0 + nbytes / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class CostModel:
    """Everything measured at calibration.

    ``task_seconds`` is the round trip of an empty task, ``map_seconds`` what mapping a segment adds to it,
    ``decode_seconds`` one decode step.
    """

    prefill: PrefillCurve
    decode_seconds: float
    frames: Link
    map_seconds: float
    task_seconds: float
    measured_at: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for storage."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> CostModel:
        """The inverse of :meth:`as_dict`."""
        rest = dict(stored)
        return cls(prefill=PrefillCurve(**rest.pop("prefill")), frames=Link(**rest.pop("frames")), **rest)

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
