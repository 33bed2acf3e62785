"""A long text that every Python has with it, so that examples need no download."""

from __future__ import annotations

from functools import cache

from kvlab.errors import InvalidInput, MissingExtra

ENOUGH_CHARACTERS = 8_600
"""About 2,000 tokens of SmolLM2; topics are added until there are so many characters."""

MOST_CHARACTERS = 9_500
"""About 2,200 tokens of SmolLM2; a topic that would lead beyond is left out."""

OPENING_TOPICS = ("objects", "exceptions", "typesmethods", "dynamic-features", "atom-identifiers")

_PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "—": "--", "–": "-", "\xa0": " "})


def sample_text(n_chars: int | None = None) -> str:
    """Chapters of Python's language reference, as it ships inside Python, in plain ASCII.

    Parameters
    ----------
    n_chars
        How many characters at most; the text ends with a whole line. Without it, whole chapters that come to between
        1,900 and 2,300 tokens of SmolLM2.

    Returns
    -------
    The same text every time on the same Python version.

    Raises
    ------
    InvalidInput
        If ``n_chars`` is not positive, or more than the whole reference has.
    MissingExtra
        If this Python was installed without its documentation.

    Examples
    --------
    >>> sample_text(25)
    'Objects, values and types'
    """
    if n_chars is None:
        return _joined(ENOUGH_CHARACTERS, MOST_CHARACTERS)
    if n_chars < 1:
        raise InvalidInput(f"n_chars must be positive, got {n_chars}", hint="leave it out for the default length")
    text = _joined(n_chars, None)
    if len(text) < n_chars:
        raise InvalidInput(f"the language reference has {len(text):,} characters, asked for {n_chars:,}")
    cut = text[: n_chars + 1].rfind("\n")
    return text[:cut].rstrip() if cut > 0 else text[:n_chars]


def _joined(enough: int, most: int | None) -> str:
    chapters = _chapters()
    order = [name for name in OPENING_TOPICS if name in chapters]
    order += sorted(chapters.keys() - set(order))
    chosen: list[str] = []
    length = 0
    for name in order:
        chapter = chapters[name]
        if length >= enough:
            break
        if chapter not in chosen and (most is None or length + len(chapter) <= most):
            chosen.append(chapter)
            length += len(chapter) + 2
    return "\n\n".join(chosen)


@cache
def _chapters() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise MissingExtra(
            "this Python has no pydoc_data, where the sample text comes from", hint="pass a text of your own"
        ) from error
    plain = {name: text.translate(_PLAIN).strip() for name, text in topics.items()}
    return {name: text for name, text in plain.items() if text.isascii()}
