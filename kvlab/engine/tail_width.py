"""How wide the tails of branches that run together are, and what they take at most. Needs no torch: the lab asks, too."""

from __future__ import annotations

from collections.abc import Sequence

MARGIN_TOKENS = 64
"""Columns added beyond what is needed when tails grow, so that growing is rare."""


def first_width(n_tokens: int, most: int) -> int:
    """Columns to begin with for prompts of up to ``n_tokens``, where no branch comes to more than ``most``."""
    return max(n_tokens, min(n_tokens + MARGIN_TOKENS, most))


def next_width(n_tokens: int, width: int, most: int) -> int:
    """Columns to grow to from ``width`` where ``n_tokens`` are needed."""
    return max(n_tokens, min(max(n_tokens + MARGIN_TOKENS, width + width // 2), most))


def working_tokens(prompts: Sequence[int], limits: Sequence[int]) -> int:
    """The most tokens that the tails of such branches take: while they grow, the old ones are there, too.

    ``prompts`` are the tokens that each is fed, ``limits`` the most that each can come to.
    """
    most = max(limits)
    width = peak = first_width(max(prompts), most)
    while width < most:
        wider = next_width(width + 1, width, most)
        peak, width = width + wider, wider
    return len(prompts) * peak
