"""Why a prompt would, or would not, reuse a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab.state.tokens import BYTES_PER_ID, common_prefix, n_ids

if TYPE_CHECKING:
    from kvlab.runtime.core import Core

WINDOW_IDS = 8
"""Tokens shown on either side of the first difference."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a prompt of ``n_tokens`` tokens would find.

    Attributes
    ----------
    n_reusable
        Tokens it would reuse: the longest state that is a prefix of it.
    state
        That state's id, or None.
    nearest, n_equal
        The state it agrees with longest, and for how many tokens; a state reused by cutting it there would save so many.
    differs
        The texts around the first differing token: (the prompt's, the state's).
    """

    n_tokens: int
    n_reusable: int
    state: str | None
    nearest: str | None
    n_equal: int
    differs: tuple[str, str] | None

    def __str__(self) -> str:
        said = [f"{self.n_tokens} tokens; {self.n_reusable} would be reused"]
        said[0] += f" from {self.state}" if self.state else ": no state is a prefix of it"
        if self.nearest and self.n_equal > self.n_reusable:
            said.append(
                f"{self.nearest} agrees for {self.n_equal} tokens; .truncate({self.n_equal}) would make them usable"
            )
        if self.differs:
            mine, theirs = self.differs
            said.append(
                f"first difference at token {self.n_equal}: the prompt goes on {mine!r}, {self.nearest} {theirs!r}"
            )
        return "\n".join(said)

    __repr__ = __str__


def explain(core: Core, prompt: str, *, chat: bool) -> Explanation:
    """Look the prompt up among the states of the lab; changes nothing."""
    tokenizer = core.tokenizer
    opening = tokenizer.open_conversation(None) if chat else tokenizer.root_ids()
    ids = opening + tokenizer.text_ids(prompt)
    n_reusable, found = core.catalog.longest_prefix(core.namespace, ids)
    records = [
        e.record for e in core.catalog.states() if e.record.namespace == core.namespace and e.phase == "resident"
    ]
    best = max(records, key=lambda record: common_prefix(record.path_ids, ids), default=None)
    n_equal = common_prefix(best.path_ids, ids) if best is not None else 0
    differs = None
    if best is not None and n_equal < min(best.n_tokens, n_ids(ids)):
        begin, end = n_equal * BYTES_PER_ID, (n_equal + WINDOW_IDS) * BYTES_PER_ID
        differs = tokenizer.decode(ids[begin:end]), tokenizer.decode(best.path_ids[begin:end])
    return Explanation(
        n_ids(ids), n_reusable, found.id if found else None, best.id if best and n_equal else None, n_equal, differs
    )
