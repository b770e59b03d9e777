"""What the index holds of a text, and the expressions of FTS5 that search it.

Each word stands in the index behind the number of its group of conversations, so what one owner said and what another
one said have no word in common, and a search reads nothing of other owners. An expression consists of such words only,
so no keyword can break it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...records.words import Phrase, keywords_of, words_of


def indexed_words(scope: int, text: str) -> str:
    """Return what the index holds of a text. `Pure.`"""
    return " ".join(_scoped(scope, words_of(text)))


def expressions(scope: int, keywords: Iterable[str]) -> tuple[str, ...]:
    """Return an expression for each keyword that holds a word: it finds the texts that hold the keyword. `Pure.`"""
    return tuple(" AND ".join(_phrase(scope, phrase) for phrase in keyword) for keyword in keywords_of(keywords))


def _scoped(scope: int, words: Iterable[str]) -> list[str]:
    prefix = f"{scope:x}z"  # a number in base 16 has no z
    return [prefix + word for word in words]


def _phrase(scope: int, phrase: Phrase) -> str:
    """Return the expression for a phrase. A word that shares more of its letters with the keyword ranks higher, because
    it is found by more alternatives."""
    if not phrase.beginnings:
        return _quoted(scope, phrase.words)
    found = (f"{_quoted(scope, (*phrase.words[:-1], beginning))}*" for beginning in phrase.beginnings)
    return f"({' OR '.join(found)})"


def _quoted(scope: int, words: Iterable[str]) -> str:
    return f'"{" ".join(_scoped(scope, words))}"'
