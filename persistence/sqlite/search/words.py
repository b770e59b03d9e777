"""Splits texts and keywords into the words by which texts are found.

SQLite's own tokenizers do not serve every language: `unicode61` takes a Chinese sentence for one word, and `trigram`
finds no word of two characters, which most Chinese words have. So texts are split here. A character of a script that
has no spaces between words is a word by itself; everything else is split at what is neither letter nor digit. Case,
accents and forms of compatibility (full-width letters, ligatures) are removed, from texts and keywords alike.

A keyword becomes an expression of FTS5 that holds nothing but such words, so no text can break it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

LONGEST_WORD = 40
"""Characters of a word that count. Chosen so that no word of a language is cut, and a base64 text stays small."""

MAX_KEYWORDS = 32
"""How many different keywords of a query are looked for: more than a model names for one message."""

MAX_KEYWORD = 200
"""Characters of a keyword that are read."""

MAX_PARTS = 8
"""How many words of a keyword, separated by spaces, a text must hold."""

SHORTEST_BEGINNING = 3
"""Letters from which on a word also finds those that begin with it."""

_SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u312f\u31f0-\u31ff"  # Japanese, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
_MARKS = "\u0591-\u05bd\u064b-\u0655\u0900-\u0963\u0966-\u0dff"
"""Vowels and other signs that stand within words, and are not letters: Hebrew, Arabic, the scripts of India."""

_WORD = re.compile(rf"[{_SPACELESS}]|(?:[^\W_{_SPACELESS}]|[{_MARKS}])+")
_ACCENT = re.compile("[\u0300-\u036f]+")
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order. `Pure.`"""
    return [word[:LONGEST_WORD] for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    """Return the text without case, accents and forms of compatibility."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", text))).casefold()


def scoped(scope: int, words: Iterable[str]) -> list[str]:
    """Return the words as they stand in the index, where each begins with the number of its scope: what one owner said
    and what another one said have no word in common. `Pure.`"""
    prefix = f"{scope:x}z"  # a number in base 16 has no z
    return [prefix + word for word in words]


def expression(scope: int, keywords: Iterable[str]) -> str | None:
    """Return the expression of FTS5 that finds the texts which hold one of the keywords; None if they hold no word.
    `Pure.`"""
    found = dict.fromkeys(_keyword(scope, keyword[:MAX_KEYWORD]) for keyword in _first(keywords))
    return " OR ".join(one for one in found if one) or None


def _first(keywords: Iterable[str]) -> list[str]:
    """Return the first different keywords, as many as count."""
    return list(dict.fromkeys(keywords))[:MAX_KEYWORDS]


def _keyword(scope: int, keyword: str) -> str:
    """Return the expression for one keyword: all of its parts in any order. What stands in a part without a space, such
    as `foo-bar`, 6:30 or a Chinese word, is found as it stands there."""
    parts = [words for words in map(words_of, keyword.split()) if words][:MAX_PARTS]
    return f"({' AND '.join(_part(scope, words) for words in parts)})" if parts else ""


def _part(scope: int, words: list[str]) -> str:
    is_beginning = len(words[-1]) >= SHORTEST_BEGINNING and not _IS_SPACELESS.match(words[-1])
    return f'"{" ".join(scoped(scope, words))}"{"*" if is_beginning else ""}'
