"""The words of texts and keywords, as every search in what was said compares them.

The tokenizers that databases have do not serve every language: SQLite's `unicode61` takes a Chinese sentence for one
word, and its `trigram` finds no word of two characters, which most Chinese words have. So texts are split here. A
character of a script that has no spaces between words is a word by itself; everything else is split at what is neither
letter nor digit. Case, accents and forms of compatibility (full-width letters, ligatures) are removed, from texts and
keywords alike.

Most languages change the ends of words: the Finnish "ravintolassa" is "in a ravintola". No rule for a single language
is used here. A keyword also finds words that share its first two thirds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_RECENT = 200
"""How many of the texts of the last minutes are returned: more than people say in that time."""

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

SHORTEST_STEM = 4
"""Letters of a word that must be the same in another form of it."""

_SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u312f\u31f0-\u31ff"  # Japanese, Bopomofo
    "\uac00-\ud7a3"  # Korean, whose words take endings without a space
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
_MARKS = "\u0591-\u05bd\u064b-\u0655\u0900-\u0963\u0966-\u0dff"
"""Vowels and other signs that stand within words, and are not letters: Hebrew, Arabic, the scripts of India."""

_WORD = re.compile(rf"[{_SPACELESS}]|(?:[^\W_{_SPACELESS}]|[{_MARKS}])+")
_ACCENT = re.compile("[\u0300-\u036f]+")
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")


@dataclass(frozen=True)
class Phrase:
    """Words that must follow each other in a text. The last one may be any word that begins with one of `beginnings`;
    if there are none, it must be the word itself."""

    words: tuple[str, ...]
    beginnings: tuple[str, ...] = ()


Keyword = tuple[Phrase, ...]
"""What a keyword of a query looks for: a text must hold all of the phrases, in any order."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order. `Pure.`"""
    return [word[:LONGEST_WORD] for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    """Return the text without case, accents and forms of compatibility."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", text))).casefold()


def keywords_of(given: Iterable[str]) -> tuple[Keyword, ...]:
    """Return what the first different keywords look for, as many as count; those without a word are left out. What
    stands in a keyword without a space, such as `foo-bar`, 6:30 or a Chinese word, is one phrase. `Pure.`"""
    first = list(dict.fromkeys(given))[:MAX_KEYWORDS]
    found = dict.fromkeys(_keyword(keyword[:MAX_KEYWORD]) for keyword in first)
    return tuple(keyword for keyword in found if keyword)


def _keyword(text: str) -> Keyword:
    parts = [words for words in map(words_of, text.split()) if words][:MAX_PARTS]
    return tuple(Phrase(tuple(words), _beginnings(words[-1])) for words in parts)


def _beginnings(word: str) -> tuple[str, ...]:
    """Return what a word that is found may begin with: the word, and its first two thirds."""
    if len(word) < SHORTEST_BEGINNING or _IS_SPACELESS.match(word) or not word.isalpha():
        return ()
    stem = word[: max(SHORTEST_STEM, -(-2 * len(word) // 3))]
    return tuple(dict.fromkeys((word, stem)))


def holds(words: Sequence[str], keyword: Keyword) -> bool:
    """Whether a text with these words holds all phrases of a keyword. `Pure.`"""
    return all(any(_stands_at(start, words, phrase) for start in range(len(words))) for phrase in keyword)


def _stands_at(start: int, words: Sequence[str], phrase: Phrase) -> bool:
    end = start + len(phrase.words) - 1
    if end >= len(words) or tuple(words[start:end]) != phrase.words[:-1]:
        return False
    last = words[end]
    return last.startswith(phrase.beginnings) if phrase.beginnings else last == phrase.words[-1]
