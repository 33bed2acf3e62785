"""What a merge starts from, and what it says: the longest branch, or a turn on what all branches share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab.errors import MergeRefused
from kvlab.workflow.definitions import AnswerPart, MergeDefinition, Part, TextPart

if TYPE_CHECKING:
    from kvlab.compiler.turns import Turn


@dataclass(frozen=True, slots=True)
class SummaryStart:
    """Where a summary's turn starts and what it says."""

    continues: str | None
    role: str | None
    parts: tuple[Part, ...]


def conversation(name: str, turns: Mapping[str, Turn]) -> list[str]:
    """Names of the turns of ``name``'s conversation, from its first to itself."""
    names: list[str] = []
    current: str | None = name
    while current is not None:
        names.append(current)
        current = turns[current].continues
    return names[::-1]


def tip_of_prefix_merge(merge: MergeDefinition, turns: Mapping[str, Turn]) -> str:
    """The branch on whose conversation all the others lie: it holds the K/V of them all.

    Raises
    ------
    MergeRefused
        Naming two branches of which neither continues the other.
    """
    longest = max((conversation(branch, turns) for branch in merge.branches), key=len)
    for branch in merge.branches:
        if branch not in longest:
            raise MergeRefused(
                f"merge {merge.name!r}: {branch!r} and {longest[-1]!r} are different continuations, and K/V of "
                "different continuations cannot be joined exactly",
                hint='how="summary" lets the model write a summary of the branches on what they share',
                agent=merge.name,
                branches=merge.branches,
            )
    return longest[-1]


def summary_parts(merge: MergeDefinition, turns: Mapping[str, Turn]) -> SummaryStart:
    """A turn that goes on from what all branches share and reads every answer they gave after it.

    They share the conversation up to their last common turn. Branches of different conversations share, if their
    system turns are the same, the parts that their first user turns begin with.
    """
    lines = [conversation(branch, turns) for branch in merge.branches]
    depth = _common(lines)
    shared = lines[0][:depth]
    answers = dict.fromkeys(turns[name].speaker for line in lines for name in line[depth:])
    already = {turns[name].speaker for name in shared}
    said = tuple(AnswerPart(name) for name in answers if name not in already)
    instruction = TextPart(merge.instruction)
    if shared:
        return SummaryStart(shared[-1], None, (*said, instruction))
    firsts = [turns[line[0]] for line in lines]
    roles = {first.role for first in firsts}
    if len(roles) > 1:
        return SummaryStart(None, None, (*said, instruction))
    begin = firsts[0].parts[: _common([first.parts for first in firsts])]
    return SummaryStart(None, roles.pop(), (*begin, *said, instruction))


def _common(lines: list[list[str]] | list[tuple[Part, ...]]) -> int:
    """Length of the beginning that all lines have in common."""
    shortest = min(len(line) for line in lines)
    return next((i for i in range(shortest) if any(line[i] != lines[0][i] for line in lines)), shortest)
