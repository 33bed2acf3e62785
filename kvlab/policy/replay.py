"""A trace of requests through a cache of limited size, without a model: what each policy would have had to compute.

A request is a path of blocks; the leading ones that are resident are hits, and all others are computed and kept. Tokens
computed although they had been computed before are *recomputed*. Moments are requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvlab.errors import InvalidInput
from kvlab.policy.eviction import NEVER, Candidate, EvictionPolicy
from kvlab.policy.shelves import Shelves

SECONDS_PER_TOKEN = 1.0
SECONDS_PER_TOKEN_AND_PAST = 1e-4
"""Costs of computing, in a unit of their own: attention makes a token behind a long past dearer. Only ratios matter."""


@dataclass(frozen=True, slots=True)
class Request:
    """Blocks by id, each for all tokens up to its end, and the tokens of each."""

    blocks: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a policy came to: tokens asked for, found, and computed once more."""

    n_tokens: int
    hit_tokens: int
    recomputed_tokens: int
    evicted_blocks: int
    peak_tokens: int

    @property
    def hit_rate(self) -> float:
        """Share of the tokens asked for that were there."""
        return self.hit_tokens / self.n_tokens if self.n_tokens else 0.0


def working_set(requests: Sequence[Request]) -> int:
    """Tokens of all different blocks: with room for so many nothing is ever evicted."""
    return sum(
        {block: n for request in requests for block, n in zip(request.blocks, request.tokens, strict=True)}.values()
    )


def replay(requests: Sequence[Request], policy: EvictionPolicy, budget_tokens: int, *, future: bool = True) -> Replayed:
    """Serve ``requests`` in turn with room for ``budget_tokens``. ``future`` lets the policy know each next use.

    A request larger than the budget keeps as many of its leading blocks as there is room for.

    Raises
    ------
    InvalidInput
        For a budget without room for a token.
    """
    if budget_tokens < 1:
        raise InvalidInput(f"a budget of {budget_tokens} tokens has room for nothing", hint="at least 1 token")
    uses: dict[int, list[int]] = {}
    for moment, request in enumerate(requests):
        for block in request.blocks:
            uses.setdefault(block, []).append(moment)
    cache = _Cache(policy, budget_tokens, uses if future else None)
    for moment, request in enumerate(requests):
        cache.serve(moment, request)
    return Replayed(cache.n_tokens, cache.hits, cache.recomputed, cache.evicted, cache.peak)


class _Cache:
    def __init__(self, policy: EvictionPolicy, budget: int, uses: dict[int, list[int]] | None) -> None:
        self._policy, self._budget, self._uses = policy, budget, uses
        self._idle = Shelves(policy)
        self._held: dict[int, int] = {}
        """Tokens of each block that is there."""
        self._seen: set[int] = set()
        self.used = self.peak = self.n_tokens = self.hits = self.recomputed = self.evicted = 0

    def serve(self, moment: int, request: Request) -> None:
        """Count what is there, compute the rest, and keep what there is room for."""
        for block in request.blocks:
            if block in self._held:  # what is used may not go
                self._idle.take(str(block))
        going = self._policy.order(self._idle, moment)
        whole, room = True, True
        for block, n_tokens in zip(request.blocks, request.tokens, strict=True):
            there = block in self._held
            whole = whole and there
            self.n_tokens += n_tokens
            if whole:
                self.hits += n_tokens
            elif block in self._seen:
                self.recomputed += n_tokens
            self._seen.add(block)
            room = room and (there or self._make_room(n_tokens, going))
            if there or room:
                self.used += 0 if there else n_tokens
                self._held[block] = n_tokens
                self._policy.used(str(block))
        self.peak = max(self.peak, self.used)
        for one in reversed(list(self._candidates(moment, request))):
            self._idle.put(one)

    def _make_room(self, n_tokens: int, going: Iterator[Candidate]) -> bool:
        """Whether there is room for ``n_tokens`` more, once as many of ``going`` are gone as it takes."""
        while self.used + n_tokens > self._budget:
            victim = next(going, None)
            if victim is None:
                return False
            self.used -= self._held.pop(int(victim.key))
            self.evicted += 1
            self._policy.gone(victim.key, evicted=True)
        return True

    def _candidates(self, moment: int, request: Request) -> Iterator[Candidate]:
        """The blocks of a request that are there now that it is served."""
        past, parent = 0, None
        for depth, (block, n_tokens) in enumerate(zip(request.blocks, request.tokens, strict=True)):
            if block in self._held:
                seconds = n_tokens * (SECONDS_PER_TOKEN + SECONDS_PER_TOKEN_AND_PAST * past)
                yield Candidate(str(block), n_tokens, seconds, moment, self._next_use(block, moment), parent, depth)
            past, parent = past + n_tokens, str(block)

    def _next_use(self, block: int, moment: int) -> float | None:
        if self._uses is None:
            return None
        moments = self._uses[block]
        index = bisect_right(moments, moment)
        return moments[index] if index < len(moments) else NEVER
