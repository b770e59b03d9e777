"""Makes texts fit to be shown.

Texts of models, tools and users can hold control characters, which a terminal would execute: they clear the screen,
change its title, or enter commands. `printable` removes them from what people read.

Whoever allows a call must see more than that: all of what will run. `with_hidden_shown` marks what a reader cannot see:
characters without a shape, spaces that only look like one, and words whose letters come from several alphabets, so that
they read as another word. What is hidden follows from Unicode's properties, by the same rules as in the page
(hidden_characters.js); a test compares the two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_KEPT = {"\n", "\t"}

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""A control sequence of a terminal: colours and the like, titles and links."""

_REORDERING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that make a terminal show text in another order than it is stored."""


def printable(text: str) -> str:
    """Return the text without control characters and sequences; line breaks and tabs stay. `Pure.`"""
    return "".join(map(_shown, _SEQUENCE.sub("", text).replace("\r\n", "\n")))


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    category = unicodedata.category(character)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    return "" if category == "Cc" or character in _REORDERING else character


# --- what a person must see before a call runs


def with_hidden_shown(text: str) -> str:
    """Return the text with each hidden character replaced by its code point, such as ⟨U+202E⟩, and with a note behind
    each word that reads as one in another alphabet: which letters let it. Visible text stays as it is: emoji, joined
    letters and ideographic spaces are not hidden where they belong. `Pure.`"""
    shown: list[str] = []
    end = 0
    for begin, behind, mark in sorted((*_hidden_in(text), *_explanations_in(text))):
        shown += text[end:begin], mark
        end = behind
    return "".join((*shown, text[end:]))


# --- characters without a shape

_Mark = tuple[int, int, str]
"""Where the marked characters begin and end, and what stands in their place; or where a mark is inserted."""


def _hidden_in(text: str) -> Iterator[_Mark]:
    characters = set(text)
    shapeless = set(filter(_has_no_shape, characters))
    accents = {one for one in characters if unicodedata.category(one) == "Mn"}
    if shapeless or accents:
        before = ""
        for index, character in enumerate(text):
            is_drawn_over = character == before and character in accents  # an accent that stands twice is drawn once
            if (character in shapeless and not _belongs(text, index)) or is_drawn_over:
                yield index, index + 1, _code_point(character)
            before = character
    for index in range(len(text.rstrip(" \t")), len(text)):
        yield index, index + 1, _code_point(text[index])


def _code_point(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


_IGNORABLE = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""The characters that have Unicode's property Default_Ignorable_Code_Point (DerivedCoreProperties.txt), which Python
does not know: a font draws nothing for them. The set has been the same since Unicode 12 but for one addition."""

_BLANK = set("\u2800\U0001d159\U00013441\U00013442\U00016fe4")
"""Symbols and letters whose shape is empty, of which no property tells: blanks and fillers of some scripts."""

_NO_SHAPE = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
"""The general categories of characters without a shape of their own, and of spaces."""


def _has_no_shape(character: str) -> bool:
    if character in " \n\t":
        return False
    return unicodedata.category(character) in _NO_SHAPE or character in _BLANK or bool(_IGNORABLE.match(character))


_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Zs"}
"""The general categories of characters that nobody sees. A character that Python does not know yet may be a new one."""


def is_blank(text: str) -> bool:
    """Return whether nobody sees anything of the text: it has only spaces, and characters without a shape. `Pure.`"""
    return all(unicodedata.category(one) in _UNSEEN or one in _BLANK or bool(_IGNORABLE.match(one)) for one in text)


# --- where a character without a shape belongs

_EMOJI = set("‼⁉\u2139↔◻◼◽◾⤴⤵〰〽")
"""Emoji that are no symbols by their category."""

_VIRAMAS = set("\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca")
"""The signs beside which a joiner chooses the form of a letter in scripts of India and Sri Lanka (RFC 5892, A.1)."""

_WIDE = {"CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "FULLWIDTH", "HANGUL"}
"""First words of the names of characters that are as wide as an ideographic space."""


def _belongs(text: str, index: int) -> bool:
    """Whether the character at this place does there what it is for: it chooses how an emoji looks, joins two of them,
    chooses the form of letters, or separates words of East Asian scripts."""
    before, character, behind = text[max(0, index - 2) : index], text[index], text[index + 1 : index + 2]
    match character:
        case "\ufe0e" | "\ufe0f":
            is_keycap = character == "\ufe0f" and behind == "\u20e3" and before[-1:] in set("0123456789#*")
            return is_keycap or _is_emoji(before[-1:])
        case "\u200d" if _is_emoji(behind):
            is_modified = before[-1:] == "\ufe0f" or "\U0001f3fb" <= before[-1:] <= "\U0001f3ff"
            return _is_emoji(before[:1] if is_modified else before[-1:])
        case "\u200c" | "\u200d":
            return _joins_letters(before[-1:], behind, may_join_arabic=character == "\u200c")
        case "\u3000":
            return _name_begins(before[-1:]) in _WIDE and _name_begins(behind) in _WIDE
        case _:
            return False


def _is_emoji(character: str) -> bool:
    return character in _EMOJI or (bool(character) and unicodedata.category(character) == "So")


def _joins_letters(before: str, behind: str, *, may_join_arabic: bool) -> bool:
    script = _name_begins(before)
    if script != _name_begins(behind):
        return False
    return before in _VIRAMAS or behind in _VIRAMAS or (may_join_arabic and script == "ARABIC")


def _name_begins(character: str) -> str:
    """The first word of the name of a character: for most letters that of its script."""
    return unicodedata.name(character, "").partition(" ")[0] if character else ""


# --- words that read as another word

_ALPHABETS = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET", "OSAGE"}
"""Scripts with letters that look like those of another one of them. The names of their letters begin with these."""

_SAME = set("асеорхуіјѕһԁԛԝӏүАВЕКМНОРСТУХІЈЅԚԜӀҮΑΒΕΖΗΙΚΜΝΟΡΤΥΧον")
"""Letters, Cyrillic and Greek, that fonts draw like a Latin letter (after confusables.txt of Unicode's UTS 39)."""

_SIMILAR = _SAME | set("αγικρσυ")
"""Greek letters that are taken for a Latin one within a Latin word. Others stand in units and formulas, as in kΩ."""


_FOREIGN = {*(name.capitalize() for name in _ALPHABETS - {"LATIN"}), "styled", "other digits"}
"""The kinds of letters and digits that may read as plain ones."""


def _explanations_in(text: str) -> Iterator[_Mark]:
    """What is to be said behind words that read as other ones."""
    if any(_kind_of(one) in _FOREIGN for one in set(text)):
        for word, end in _words(text):
            if mark := _explanation(word):
                yield end, end, mark


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Each word and where it ends. What is not drawn does not end it."""
    begin = 0
    for index, character in enumerate(text):
        if _ends_word(character):
            yield text[begin:index], index
            begin = index + 1
    yield text[begin:], len(text)


@lru_cache(maxsize=4096)
def _ends_word(character: str) -> bool:
    return unicodedata.category(character)[0] not in "LMN" and not _IGNORABLE.match(character)


def _explanation(word: str) -> str:
    """Which letters of the word are of an alphabet in which it reads as another word; empty for most words."""
    if word.isascii():
        return ""
    kinds: dict[str, dict[str, None]] = {}
    for character in word:
        kinds.setdefault(_kind_of(character), {})[character] = None
    misleading = (kind for kind in kinds if kind in _FOREIGN and _misleads(word, kind, kinds))
    return "".join(f"⟨{kind} {', '.join(kinds[kind])}⟩" for kind in misleading)


def _misleads(word: str, kind: str, kinds: dict[str, dict[str, None]]) -> bool:
    """Whether the letters of this kind let the word read as another one."""
    letters = set(map(_plain_form, kinds[kind]))
    if kind == "other digits":
        return "plain digits" in kinds
    if kind == "Greek" and "Latin" in kinds:
        return not _SIMILAR.isdisjoint(letters)
    alphabets = kinds.keys() - {"plain digits", "other digits", ""}
    return len(alphabets) > 1 or (len(word) > 1 and _SAME.issuperset(letters))


@lru_cache(maxsize=4096)
def _kind_of(character: str) -> str:
    """The alphabet of a letter, or which digits a digit belongs to; empty for what no other alphabet is like. Latin
    letters in another style, such as mathematical ones, are a kind of their own: beside others they look the same."""
    if character.isascii():
        return "Latin" if character.isalpha() else "plain digits" if character.isdigit() else ""
    category, plain = unicodedata.category(character), _plain_form(character)
    if category == "Nd":
        return "other digits"
    if category in ("Ll", "Lu", "Nl") and plain.isascii() and plain.isalpha():
        return "styled"
    name = _name_begins(plain)
    return name.capitalize() if category[0] == "L" and name in _ALPHABETS else ""


def _plain_form(character: str) -> str:
    """The character that this one is a variant of, such as the letter of a mathematical letter; else itself."""
    form = unicodedata.normalize("NFKC", character)
    return form if len(form) == 1 else character
