"""How much of what was said a user has heard, when the user has interrupted it.

Whoever speaks a text, or transcribes what was spoken, has other words than were written: without the marks of Markdown,
without the addresses of links, with other spaces and punctuation. So only letters and digits are compared, in one case.
What was heard is the beginning of what was said in the turn, or of its last texts, since a listener need not have
counted those before.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_UNSPOKEN = re.compile(r"(?<=\])\([^()\n]*\)|</?[a-zA-Z][^<>\n]{0,500}>|(?<=[\w.])/[^\s()<>]+|https?://(?:www\.)?")
"""What of Markdown is not spoken: the targets of links, tags, and of a URL all but its host."""


def heard_parts(said: Sequence[str], heard: str) -> tuple[str, ...] | None:
    """Return what was heard of each of these texts, which were said in this order: all, its beginning, or nothing. None
    if `heard` is no beginning of them, nor of the last of them. `Pure.`"""
    wanted = "".join(letter for letter, _ in _letters(heard))
    if not wanted:
        return ("",) * len(said)
    for letters in (_letters, _spoken_letters):
        spelled = [[*letters(text)] for text in said]
        for first in (0, *range(len(said) - 1, 0, -1)):
            parts = _parts(said[first:], spelled[first:], wanted)
            if parts is not None:
                return (*said[:first], *parts)
    return None


_Letters = list[tuple[str, int]]
"""The letters of a text, each with the place behind it."""


def _letters(text: str) -> Iterator[tuple[str, int]]:
    for place, character in enumerate(text, start=1):
        for letter in unicodedata.normalize("NFKC", character).casefold():
            if letter.isalnum():
                yield letter, place


def _spoken_letters(text: str) -> Iterator[tuple[str, int]]:
    unspoken = [found.span() for found in _UNSPOKEN.finditer(text)]
    for letter, place in _letters(text):
        while unspoken and unspoken[0][1] < place:
            del unspoken[0]
        if not unspoken or place <= unspoken[0][0]:
            yield letter, place


def _parts(said: Sequence[str], spelled: Sequence[_Letters], wanted: str) -> list[str] | None:
    """What was heard of each text if `wanted` is the beginning of all their letters; None if it is not."""
    parts: list[str] = []
    for text, letters in zip(said, spelled, strict=True):
        written = "".join(letter for letter, _ in letters)
        if wanted.startswith(written):
            parts.append(text if wanted or not written else "")
            wanted = wanted[len(written) :]
        elif written.startswith(wanted):
            parts.append(_cut(text, letters[len(wanted) - 1][1]) if wanted else "")
            wanted = ""
        else:
            return None
    return None if wanted else parts


def _cut(text: str, place: int) -> str:
    """The text up to this place, with the punctuation and the marks behind it."""
    while place < len(text) and not (text[place].isalnum() or text[place].isspace()):
        place += 1
    return text[:place]
