"""Finds telephone numbers: international ones, those of North America as they are written there, and any that a word
such as "tel" or "mobile" stands in front of. Whether digits can be a number is decided by `phonenumbers`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..rule import SecretSpan

_INTERNATIONAL = re.compile(r"(?<![\w.+(])\(?(?P<sign>\+|00)[ ]?(?P<rest>\(?\d[\d ().\-/]{5,22}\d)(?![\w])")
_AMERICAN = re.compile(
    r"(?<![\w.$€£-])(?<!\d[ ,])(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}(?![\w-]|[.,]\d| ?%)"
)
_NAMED = re.compile(
    r"""\b(?:(?:tele)?phones?|tel|mobile|mob|cell(?:phone)?|gsm|fax|whatsapp|signal|handy|telefon\w*|rufnummer|telefono
    |teléfono|téléphone|móvil|celular|mobil|tlf|tfn|puh(?:elin)?|puhelinnumero\w*|numero\w*|soita|ring|call|text|dial|sms
    |(?:phone[ ])?number|电话|手机|電話)[.:)]{0,2}[\s:]{0,3}
    (?:(?:me|us|him|her|them|is|at|on|no\.?|nr\.?|number|numerosta|numeroon|to|the|my|office|home|work)[ :]{1,2}){0,4}+
    (?P<secret>\(?\d[\d ()./-]{5,18}\d)(?![\w-]|[.,]\d)""",
    re.VERBOSE | re.IGNORECASE,
)
"""A number behind a word for telephones, perhaps with a few words between them."""

_NO_PHONE = re.compile(
    r"""(?:\b(?:order|invoice|ticket|case|part|serial|item|model|sku|reference|tracking)s?\b
    (?:[ ]?(?:number|no\.?|nr\.?|id))?[ :\#]{0,3}|\#)$""",
    re.VERBOSE | re.IGNORECASE,
)
"""What says that the number behind it is none of a telephone, although it is written like those of North America."""

_LOOKED_BACK = 30

_DATE = re.compile(r"\d{4}[-./]\d\d?[-./]\d\d?|\d\d?[-./]\d\d?[-./]\d{4}")


def find_phones(text: str) -> Iterator[SecretSpan]:
    """Yield the telephone numbers in a text."""
    for match in _INTERNATIONAL.finditer(text):
        if _is_number("+" + match["rest"], "ZZ", strictly=match["sign"] == "00"):
            yield SecretSpan(*match.span(), "PHONE")
    for match in _AMERICAN.finditer(text):
        is_named = _NO_PHONE.search(text, max(0, match.start() - _LOOKED_BACK), match.start())
        if not is_named and _is_number(match[0], "US", strictly=True):
            yield SecretSpan(*match.span(), "PHONE")
    for match in _NAMED.finditer(text):
        digits = sum(map(str.isdigit, match["secret"]))
        if 7 <= digits <= 13 and not _DATE.fullmatch(match["secret"]):
            yield SecretSpan(*match.span("secret"), "PHONE")


def _is_number(text: str, region: str, *, strictly: bool) -> bool:
    from phonenumbers import NumberParseException, is_possible_number, is_valid_number, parse

    try:
        number = parse(text, region)
    except NumberParseException:
        return False
    return is_valid_number(number) if strictly else is_possible_number(number)
