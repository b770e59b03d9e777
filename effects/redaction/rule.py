"""The rules by which secrets are found, and a text as they see it.

A rule is any function that looks at a text and tells where in it the secrets are. Most are a pattern, some with a
check of what the pattern found: the checksum of a card number, for example. What several rules found is made into
parts that do not overlap.

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
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...states.errors import ConfigurationError

_LABEL = re.compile(r"[A-Z][A-Z0-9_]{1,31}")
"""What a label looks like. In a text it stands in square brackets."""

LONGEST_WORD = 16
"""Characters of a label that is known by its form. Chosen to be longer than any label of the built-in rules, and
shorter than keys and numbers that are written in capitals."""

SECRET = "secret"
"""The group of a pattern that is the secret. Without such a group it is all that the pattern matches."""


class SecretSpan(NamedTuple):
    """A secret in a text: it goes from `start` up to `end`, and the label says of which kind it is."""

    start: int
    end: int
    label: str


SecretRule: TypeAlias = Callable[[str], Iterable[SecretSpan]]
"""Finds secrets in a text. The same text must always have the same findings."""


@dataclass(frozen=True)
class RedactionRule:
    """A rule made of a pattern: `RedactionRule("BADGE", r"B-[0-9]{6}")` puts `[BADGE]` in the place of a badge number.

    If the pattern has a group with the name `secret`, only what this group matches is replaced. `check`, if given, gets
    the secret and tells whether it is one. The pattern sees a text without invisible characters, in which letters and
    digits that look like those of ASCII have become these. Keep it linear: it is applied to texts of up to a megabyte.

    Raises `ConfigurationError` for a label other than capitals, digits and underscores, and for an invalid pattern.
    """

    label: str
    pattern: str | re.Pattern[str]
    check: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.label):
            raise ConfigurationError("The label of a rule is 2 to 32 capitals, digits and underscores.")
        try:
            compiled = re.compile(self.pattern)
        except (re.error, RecursionError):
            raise ConfigurationError(f"The pattern of the rule {self.label} is no regular expression.") from None
        if not isinstance(compiled.pattern, str):
            raise ConfigurationError(f"The pattern of the rule {self.label} must be one for texts, not for bytes.")
        object.__setattr__(self, "pattern", compiled)

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the secrets in a text."""
        pattern: re.Pattern[str] = self.pattern  # type: ignore[assignment]
        group: str | int = SECRET if SECRET in pattern.groupindex else 0
        for match in pattern.finditer(text):
            start, end = match.span(group)
            if start < end and (self.check is None or self.check(match[group])):
                yield SecretSpan(start, end, self.label)


def declared_labels(rules: Iterable[SecretRule]) -> frozenset[str]:
    """Return the labels that rules made of a pattern use. `Pure.`"""
    return frozenset(rule.label for rule in rules if isinstance(rule, RedactionRule))


def is_label(name: str, declared: Set[str]) -> bool:
    """Whether what stands in brackets, and looks like a label, is one. A key in capitals may stand there as well:
    `[AKIAIOSFODNN7EXAMPLE]`. So a label is one of those `declared`, or a short word without digits. `Pure.`"""
    return name in declared or (len(name) <= LONGEST_WORD and not any(map(str.isdigit, name)))


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
        self.text: str = fold(original) if not parts else "".join([*parts, fold(original[done:])])

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the characters from `start` up to `end` stand in the original, with the invisible characters
        that follow them."""
        return self._original_place(start), self._original_place(end)

    def _original_place(self, place: int) -> int:
        index = bisect_right(self._places, place) - 1
        return self._original_places[index] + place - self._places[index]


def _is_invisible(character: str) -> bool:
    return character in _FILLERS or unicodedata.category(character) in _INVISIBLE


_MARKS = re.compile(f"{LABEL_MARK}+")


def secrets_in(text: str, rules: Iterable[SecretRule]) -> list[SecretSpan]:
    """Return the secrets that the rules find in a folded text, in order and apart from each other. Where secrets
    overlap they are one, with the label of the rule that comes first. Labels that stand in the text already are left
    out of them. Raises what a rule raises, and ValueError for a secret outside the text."""
    found = [
        (start, end, priority, label)
        for priority, rule in enumerate(rules)
        for start, end, label in rule(text)
        if _is_inside(start, end, label, text)
    ]
    if not found:
        return []
    found.sort()
    merged = [found[0]]
    for start, end, priority, label in found[1:]:
        last_start, last_end, last_priority, last_label = merged[-1]
        if start >= last_end:
            merged.append((start, end, priority, label))
        else:
            first = min((last_priority, last_label), (priority, label))
            merged[-1] = (last_start, max(end, last_end), *first)
    return [one for start, end, _, label in merged for one in _without_labels(text, SecretSpan(start, end, label))]


def _is_inside(start: int, end: int, label: str, text: str) -> bool:
    if not 0 <= start <= end <= len(text) or not _LABEL.fullmatch(label):
        raise ValueError("a rule has found something outside the text, or under an invalid label")
    return start < end


def _without_labels(text: str, found: SecretSpan) -> Iterator[SecretSpan]:
    """Yield the parts of a secret that stand between labels, without the space around them."""
    start = found.start
    for mark in (*_MARKS.finditer(text, found.start, found.end), None):
        end = found.end if mark is None else mark.start()
        part = text[start:end]
        if part.strip():
            yield SecretSpan(start + len(part) - len(part.lstrip()), start + len(part.rstrip()), found.label)
        if mark is not None:
            start = mark.end()
