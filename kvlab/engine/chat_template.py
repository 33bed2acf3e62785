"""A chat template cut into the pieces between the texts, by rendering and comparing, not by knowing formats.

A state is prolonged and never rewritten, so only a template is usable whose rendering of a longer conversation begins
with its rendering of a shorter one. Everything else is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvlab.errors import KVLabError, ModelRefused

Message = dict[str, str]
Render = Callable[[Sequence[Message], bool], str]
"""``render(messages, add_generation_prompt)`` gives the template's text; raises when the template cannot."""

SYSTEM = "KVLABZQSYSTEM"
USERS = ("KVLABZQUSERA", "KVLABZQUSERB", "KVLABZQUSERC")
ANSWERS = ("KVLABZQANSWERA", "KVLABZQANSWERB")
_TURNS = (USERS[0], ANSWERS[0], USERS[1], ANSWERS[1], USERS[2])

_CLOCK = "strftime_now"


@dataclass(frozen=True, slots=True)
class TemplatePieces:
    """The template's own text, in the order in which a conversation meets it.

    Attributes
    ----------
    opening
        Before the first user text when no role is given (the template's default system turn included).
    role_opening
        Before the role text and between it and the first user text; or why the template has no place for a role.
    close_user
        After a user text, up to where the model's answer starts.
    close_answer
        After an answer, beginning with the end-of-turn marker.
    open_next_user
        Before every further user text.
    """

    opening: str
    role_opening: tuple[str, str] | str
    close_user: str
    close_answer: str
    open_next_user: str


def cut_template(source: str, render: Render) -> TemplatePieces:
    """Cut the template ``source``, rendered by ``render``, into pieces. Changes nothing.

    White space that a template puts between the generation header and the answer, or between the answer and its
    end-of-turn marker, is the model's to write and is left out.

    Raises
    ------
    ModelRefused
        If the template is not append-only, or writes something else each time it is rendered.
    """
    if _CLOCK in source:
        raise _refused("it writes the date of today into the prompt")
    opening, close_user, close_answer, open_next_user = _cut_turns(render, [])
    _require_verbatim_answers(source, render)
    role_opening = _cut_role(render, (close_user, close_answer, open_next_user))
    return TemplatePieces(opening, role_opening, close_user, close_answer, open_next_user)


def _cut_turns(render: Render, system: list[Message]) -> tuple[str, str, str, str]:
    """Opening, close_user, close_answer and open_next_user of conversations that begin with ``system``."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(_TURNS)]
    shown = []
    for length in range(1, len(messages) + 1):
        turns = system + messages[:length]
        shown.append(_rendered(render, turns, ends_with_user=length % 2 == 1))
    for shorter, longer in pairwise(shown):
        if not longer.startswith(shorter):
            raise _refused("a longer conversation does not begin with the shorter one: earlier turns are rewritten")

    opening, close_user = _between(shown[0], [USERS[0]])
    ended = _between(shown[1], [USERS[0], ANSWERS[0]])[-1]
    end_of_turn = ended.lstrip()
    close_answer = end_of_turn or ended
    _, *gaps, last = _between(shown[-1], _TURNS)
    to_answers, to_users = gaps[0::2], gaps[1::2]
    same_headers = all(gap.startswith(close_user) and not gap[len(close_user) :].strip() for gap in to_answers)
    if not same_headers or last != close_user or len(set(to_users)) != 1 or not to_users[0].startswith(ended):
        raise _refused("what stands between two turns depends on where in the conversation they are")
    return opening, close_user, close_answer, to_users[0][len(ended) :]


def _rendered(render: Render, turns: list[Message], *, ends_with_user: bool) -> str:
    try:
        text = render(turns, ends_with_user)
        again = render(turns, ends_with_user)
    except Exception as error:
        raise _refused(f"it fails on a plain conversation of {len(turns)} turns ({error})") from error
    if text != again:
        raise _refused("it writes something else each time it is rendered")
    return text


def _between(text: str, marks: Sequence[str]) -> list[str]:
    """``text`` around ``marks``, which must occur once each and in this order."""
    pieces, rest = [], text
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found or mark in rest:
            raise _refused("a turn is left out, repeated or moved")
        pieces.append(before)
    return [*pieces, rest]


def _require_verbatim_answers(source: str, render: Render) -> None:
    """Refuse templates that look into an answer and cut it, as those that drop the thinking of earlier turns do.

    What they look for stands as a string in the template, so an answer that holds all its strings must come back whole.
    """
    from jinja2 import Environment

    strings = [token.value for token in Environment().lexer.tokenize(source) if token.type == "string"]  # noqa: S701
    answer = ANSWERS[0] + ANSWERS[0].join(dict.fromkeys(strings)) + ANSWERS[0]
    turns = [
        {"role": "user", "content": USERS[0]},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": USERS[1]},
    ]
    if answer not in _rendered(render, turns, ends_with_user=True):
        raise _refused("it cuts or rewrites parts of earlier answers")


def _cut_role(render: Render, after_opening: tuple[str, str, str]) -> tuple[str, str] | str:
    try:
        with_role, *others = _cut_turns(render, [{"role": "system", "content": SYSTEM}])
        before, between = _between(with_role, [SYSTEM])
    except ModelRefused as refusal:
        return str(refusal.data["reason"])
    return (before, between) if tuple(others) == after_opening else "every turn looks different once there is a role"


def _refused(reason: str) -> KVLabError:
    return ModelRefused(
        f"the chat template is not append-only: {reason}",
        hint="use raw text (chat=False), another model, or a tokenizer folder with an append-only chat_template.jinja",
        reason=reason,
    )
