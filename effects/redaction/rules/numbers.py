"""Finds numbers with a checksum: those of payment cards and of bank accounts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from ..rule import SecretSpan

_DIGITS = re.compile(r"(?<![\w.,])\d[\d .\n-]{10,}+")
"""Groups of digits, of which some together may be the number of a card."""

_GROUP = re.compile(r"\d+")

_ISSUERS = re.compile(
    r"""4\d{12}(?:\d{3}){0,2}                                                   # Visa
    |(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}           # Mastercard
    |3[47]\d{13}                                                                # American Express
    |3(?:0[0-5]|[689]\d)\d{11,16}                                               # Diners Club
    |(?:6011|64[4-9]\d|65\d\d|62\d\d|81\d\d)\d{12,15}                           # Discover, UnionPay
    |35(?:2[89]|[3-8]\d)\d{12,15}                                               # JCB
    |(?:50|5[6-8]|6[0-9])\d{12,17}                                              # Maestro and others
    |220[0-4]\d{12,15}                                                          # Mir""",
    re.VERBOSE,
)
"""How the numbers of cards begin and how long they are (ISO/IEC 7812). A book, an article or a moment in milliseconds
begins otherwise."""

_ACCOUNT = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \n-]?[A-Za-z0-9]){11,30}+")
"""The beginning of an IBAN (ISO 13616), perhaps with the words after it."""

_SHORTEST_CARD, _LONGEST_CARD = 13, 19

_MOST_BESIDE = 7
"""How many other groups of digits may stand around a card: when it expires, digit by digit, and its check number."""

_Group = tuple[int, str]
"""Where digits begin in a text, and the digits."""


def find_cards(text: str) -> Iterator[SecretSpan]:
    """Yield the numbers of payment cards, by issuer and checksum. Their groups may be separated."""
    from stdnum import luhn

    for run in _DIGITS.finditer(text):
        groups = [(run.start() + group.start(), group[0]) for group in _GROUP.finditer(run[0])]
        first = anchor = 0
        while first < len(groups):
            used = (
                _card_length(text, groups, first, luhn.is_valid)
                if first == anchor or not _is_short(groups[first])
                else 0
            )
            if used and not _is_of_list(text, groups, first, used, anchor):
                start, (last_start, last) = groups[first][0], groups[first + used - 1]
                yield SecretSpan(start, last_start + len(last), "CARD")
                anchor = first + used
            first += used or 1


def _is_short(group: _Group) -> bool:
    """Whether this may be a part of a number that is read out digit by digit, or in pairs."""
    return len(group[1]) <= 2


def _is_of_list(text: str, groups: Sequence[_Group], first: int, used: int, anchor: int) -> bool:
    """Whether a number is rather made of members of a list or a table, in which some always look like a card together.
    `anchor` is where a card may begin in any case: at the beginning, or behind another card."""
    inside = _between(text, groups, first + 1) if used > 1 else ""
    if inside != "." and text.endswith(".", 0, groups[first][0]):
        return True  # the digits of a fraction
    if len(groups) - used <= _MOST_BESIDE:
        return False
    return _is_short(groups[first]) or (first > anchor and _between(text, groups, first) == inside)


def _between(text: str, groups: Sequence[_Group], index: int) -> str:
    """Return what separates a group from the one before it."""
    start, digits = groups[index - 1]
    return text[start + len(digits) : groups[index][0]]


def _card_length(text: str, groups: Sequence[_Group], first: int, is_valid: Callable[[str], bool]) -> int:
    """Return how many groups from the first on are the number of a card, or 0."""
    digits, separators = "", set()
    for count, (_, group) in enumerate(groups[first : first + _LONGEST_CARD], 1):
        digits += group
        if len(digits) > _LONGEST_CARD:
            break
        if count > 1:
            separators.add(_between(text, groups, first + count - 1))
        if len(digits) < _SHORTEST_CARD or not _ISSUERS.fullmatch(digits) or not is_valid(digits):
            continue
        if _is_grouped(separators, [one for _, one in groups[first : first + count]]):
            return count
    return 0


def _is_grouped(separators: set[str], groups: list[str]) -> bool:
    """Whether groups of digits are written as those of one number."""
    if len(separators) <= 1 and all(len(one) == 1 for one in separators):
        return (
            len(groups) == 1
            or min(map(len, groups[:-1])) >= 3
            or set(map(len, groups)) == {1, 2}
            or _are_single(groups)
        )
    return all(len(one) == 4 for one in groups[:-1]) and all(len(one.strip(" ")) <= 1 for one in separators)


def _are_single(groups: list[str]) -> bool:
    return all(len(one) <= 2 for one in groups)


def find_accounts(text: str) -> Iterator[SecretSpan]:
    """Yield the numbers of bank accounts (IBAN), by country, length and checksum."""
    from stdnum import iban

    for match in _ACCOUNT.finditer(text):
        length = _account_length(match[0][:2].upper())
        places = [place for place, character in enumerate(match[0]) if character.isalnum()][:length]
        if length and len(places) == length:
            end = places[-1] + 1
            if iban.is_valid(match[0][:end].replace("\n", "")) and not match[0][end : end + 1].isalnum():
                yield SecretSpan(match.start(), match.start() + end, "IBAN")


@cache
def _account_length(country: str) -> int:
    """Return how many characters an IBAN of this country has, or 0 if there are none."""
    from stdnum import numdb

    properties = numdb.get("iban").info(country)[0][1]
    structure = properties.get("bban", "")
    return 4 + sum(map(int, re.findall(r"(\d+)!", structure))) if structure else 0
