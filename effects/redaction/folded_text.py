"""A text as the rules see it.

A secret can be written so that a pattern for ASCII misses it: in full-width digits, with letters of another alphabet
that look the same, or with invisible characters in it. So the rules see a folded text: look-alikes have become ASCII
letters, digits and signs, and invisible characters are left out. A label that stands in the text already is one
character that no rule matches, so that what was redacted before is not looked at again; and so is a file in a `data:`
URL.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Set

from .rule import is_label

LABEL_MARK = "\ue000"
"""Stands for a label or a file in a folded text. It is for private use, so it means nothing in any text."""

_CYRILLIC = ("асԁеһіјӏорԛѕухѵԝАВСЕНІЈКМОРЅТХУԚԜ", "acdehijlopqsyxvwABCEHIJKMOPSTXYQW")
_GREEK = ("οινΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "oivABEZHIKMNOPTYX")
_SIGNS = ("“”„«»‘’‚‛´′−\u2028\u2029", "\"\"\"\"\"''''''-\n\n")

_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn"})
"""Categories of characters that do not show, or that only decorate the character before them."""

_FILLERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Characters of other categories that do not show either."""

_SPECIAL = re.compile(
    rf"\[[A-Z][A-Z0-9_]{{1,31}}\]|data:(?:image|audio|video|font|application)/[\w.+-]{{1,80}};base64,[A-Za-z0-9+/=]+"
    rf"|[{_FILLERS}]|[^\t-\r -~\w]"
)
"""What may be a label, a file in a `data:` URL, or a character that may be invisible."""


class _Folds(dict[int, int]):
    """The ASCII character that each character looks like, or the character itself. It is filled as characters occur."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        folded = unicodedata.normalize("NFKC", character)
        if len(folded) != 1:
            folded = character
        if unicodedata.category(folded) == "Pd":
            folded = "-"
        elif folded.isdecimal():
            folded = str(unicodedata.decimal(folded))
        self[code] = ord(folded)
        return self[code]


_FOLDS = _Folds(
    {
        ord(one): ord(other)
        for alike, plain in (_CYRILLIC, _GREEK, _SIGNS)
        for one, other in zip(alike, plain, strict=True)
    }
)


def fold(text: str) -> str:
    """Return the text in the letters, digits and signs that the rules see. It has the same length. `Pure.`"""
    return text if text.isascii() else text.translate(_FOLDS)


def lowered(text: str) -> str:
    """Return the text in lower case. It has the same length. `Pure.`"""
    return text.replace("\u0130", "i").lower()  # in lower case, this capital has two characters


class FoldedText:
    """A text as the rules see it (`text`), of which each place can be found in the original. `labels` are those that
    cannot be known by their form."""

    def __init__(self, original: str, labels: Set[str] = frozenset()) -> None:
        self._end = len(original)
        self._places, self._original_places = [0], [0]
        parts: list[str] = []
        length = done = 0
        for special in _SPECIAL.finditer(original):
            start, end = special.span()
            is_mark = end - start > 1
            if is_mark and original[start] == "[" and not is_label(original[start + 1 : end - 1], labels):
                continue
            if not is_mark and not _is_invisible(original[start]):
                continue
            parts += [fold(original[done:start]), LABEL_MARK if is_mark else ""]
            length += start - done + is_mark
            done = end
            self._places.append(length)
            self._original_places.append(end)
        self.text = fold(original) if not parts else "".join([*parts, fold(original[done:])])

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the characters from `start` up to `end` stand in the original, with the invisible characters
        that follow them."""
        return self._original_place(start), self._original_place(end)

    def _original_place(self, place: int) -> int:
        index = bisect_right(self._places, place) - 1
        return self._original_places[index] + place - self._places[index]


def _is_invisible(character: str) -> bool:
    return character in _FILLERS or unicodedata.category(character) in _INVISIBLE
