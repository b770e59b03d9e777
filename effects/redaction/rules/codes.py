"""Finds one-time codes, PINs and the check numbers of cards by the words around them.

Digits alone are no code, and not every code is secret: those of errors, places, countries, shops and programs are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..folded_text import fold, lowered
from ..rule import SecretSpan

_KINDS = r"""(?:verification|verify|verifying|security|log[_\s-]?in|sign[_\s-]?in|sign[_\s-]?on|authentication
    |authenticator|authorization|auth|confirmation|access|one[_\s-]?time|single[_\s-]?use|2fa|mfa|two[_\s-]?factor|sms
    |text|activation|recovery|backup|reset|unlock|door|alarm|gate|pairing|bank|secret|temporary|card|otp|pin|entry|safe)"""

_NAME = rf"""(?:{_KINDS}[_\s-]?(?:pass)?code
    |(?:one[_\s-]?time|security|card)[_\s-](?:password|number|pin)
    |authenticator(?:\sapp)?
    |\b(?:otp|totp|pin|cvv2?|cvc2?|csc|(?-i:TAN)|mfa|2fa|passcode|pincode|pin[_\s-]?(?:code|number))\b
    |kertakäyttökoodi\w*|vahvistuskoodi\w*|tunnusluku\w*|pin-?koodi\w*|turvakoodi\w*
    |bestätigungscode|sicherheitscode|einmalcode|engångskod\w*|verifieringskod\w*
    |code\sde\s(?:vérification|sécurité|confirmation)|código\sde\s(?:verificación|seguridad|confirmación)
    |{fold("код")}(?:\s{fold("подтверждения")})?|验证码|驗證碼|認証コード|인증번호)"""

_DIGITS = r"""(?:(?:[A-Z]-)?\d{4,8}|\d{3}[\ -]\d{3,4}|\d{4}[\ -]\d{4}|\d{2}[\ -]\d{2}[\ -]\d{2}
    |\d[\ -]\d[\ -]\d[\ -]\d(?:[\ -]\d){0,4})"""

_LETTERS = r"(?-i:(?=[A-Za-z-]{0,9}\d)(?:[A-Z0-9]{4,10}|[A-Z0-9]{3,5}-[A-Z0-9]{3,5}|[a-z0-9]{6,10}))"

_CODE = rf"(?P<secret>{_DIGITS}|{_LETTERS})"

_END = r"(?![\w-]|[.,:/]\d|\s?%)"
"""Behind a code: it does not go on as a longer number, a price, a moment or a percentage."""

_BETWEEN = r"""(?:(?:they|you|we|i|he|she|it|that|which|just|for|to|from|in|me|us|my|your|the|this|sent|texted|sign|log
    |got|is|are|was|below|now|number|code|today|acme|google|apple|bank|account|login|new|on|ist|est|es|är|lautet|lauten
    |shows|displays|reads|says)\b|[a-z]{1,12}(?='s))(?:[ ]{1,2}|(?=:))"""
"""A word that may stand between a name and the code."""


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE | re.IGNORECASE)


_PATTERNS = (
    # A code behind its name, perhaps with a few words between them: "your verification code for Acme is 482913".
    _pattern(
        rf"""{_NAME}(?:s?\b|[是为為は])[\s"'`*)\]]{{0,3}}(?:{_BETWEEN}){{0,7}}+[\s:=\#>"'`*(\[-]{{0,5}}{_CODE}{_END}"""
    ),
    _pattern(
        rf"""\b(?:cvv2?|cvc2?|csc|security\s(?:code|number))\b[\s:="'(is]{{1,6}}(?P<secret>\d{{3}}){_END}""",
    ),
    # A code that belongs to somebody: "your Acme code is 482913".
    _pattern(
        rf"""\b(?:your|my|the|ihr|koodi(?:si)?|dein)\b[ ]{{1,2}}(?:[\w'-]{{1,20}}[ ]{{1,2}}){{0,2}}?
        (?:code|koodi|kod|passcode|pin)\b(?:[ ](?:is|=|on|ist|lautet|est|es)|:)\s{{0,3}}["'`*(\[]{{0,2}}{_CODE}{_END}"""
    ),
    # A code in front of its name: "482913 is your code".
    _pattern(
        rf"""(?<![\w.,:/-]){_CODE}(?![\w-])["'`*)\]]{{0,2}}[ ]{{1,2}}(?:(?:is|as|ist|on|est|es|to)[ ])?
        (?:(?:your|my|the|ihr|dein|one-time|otp|sinun)[ ]{{1,2}})(?:[\w'-]{{1,20}}[ ]{{1,2}}){{0,3}}?
        (?:{_NAME}|code\b|koodi)"""
    ),
    # A code by what it is for: "use 482913 to log in".
    _pattern(
        rf"""\b(?:use|enter|type|käytä|syötä)[ ]{{1,2}}(?:(?:the|this|code)[ ]{{1,2}}){{0,2}}
        ["'`*]{{0,2}}(?P<secret>{_DIGITS})["'`*]{{0,2}}[ ]{{1,2}}(?:to|for|as)[ ]{{1,2}}(?:(?:your|the|a)[ ])?
        (?:log|sign|verif|confirm|authent|complete|reset|unlock|access|two|one)"""
    ),
    # The six digits that most services send, behind "code" alone.
    _pattern(
        rf"""\b(?:code|koodi(?:si|ni)?|codice|código)(?:[ ](?:on|est|è|es|ist|lautet))?[ :=\#]{{1,3}}["'`*(]{{0,2}}
        (?P<secret>\d{{6}}|\d{{3}}[ -]\d{{3}}){_END}"""
    ),
)

_PUBLIC = _pattern(
    r"""(?:error|exit|zip|post(?:al)?|country|area|status|product|promo|discount|coupon|voucher|item|order|source|dress
    |colou?r|currency|sort|qr|bar|gate|language|airport|response|http|return|build|course|dial(?:l?ing)?|city|state|tax
    |swift|referral|invite|gift|part|article|stock|hs|hts|sic|naics|icd|cpt|model|serial|tariff|asset|ticker|unit|site
    |store|shop|job|event|track|ticket|booking|reference|tracking|department|cost|account|customer)$"""
)
"""What stands in front of "code" where it is no code of a person."""

_CODE_WORD = re.compile(r"[\s:]+(?:codes?|koodi)\b", re.IGNORECASE)

_FIELD = _pattern(
    r"""(?:otp|totp|pin|pin_?code|passcode|cvv2?|cvc2?|csc|tan
    |(?:mfa|2fa|sms|verification|security|one_?time|login|auth|access|confirmation|activation|recovery|backup)
    _?(?:code|pin|password)s?)"""
)
_FIELD_VALUE = _pattern(rf"\d{{3,10}}|{_DIGITS}|[A-Za-z0-9-]{{4,12}}")

_HINT = re.compile(
    rf"code|koodi|kod|{fold('код')}|验证码|驗證碼|コード|인증번호|pin|otp|tan|cvv|cvc|csc|2fa|mfa|tunnusluku|código|digo\sde|codice"
    r"|one-time|one\stime|security|verif|unlock|sign\sin|log\sin|authenticator"
)
"""Words for codes, or parts of such words, in lower case. They are quickly found, and most texts have none of them."""

_AROUND = 120
"""Characters before and behind such a word in which its code stands."""

_DIGIT = re.compile(r"[0-9]")
_REST_OF_WORD = re.compile(r"[^\s]{0,40}+")


class CodeRule:
    """Finds codes in a text, and knows which members of a JSON object are codes by their names."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the codes in a text."""
        for start, end in _places_of_hints(text):
            for pattern in _PATTERNS:
                for match in pattern.finditer(text, start, end):
                    if not _is_public(match):
                        yield SecretSpan(*match.span("secret"), "CODE")

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no code."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_")
        is_code = _FIELD.fullmatch(words) and _FIELD_VALUE.fullmatch(fold(value.strip()))
        return "CODE" if is_code and any(map(str.isdigit, value)) else None


def _places_of_hints(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text in which a word for codes and a digit stand."""
    start = end = 0
    for hint in _HINT.finditer(lowered(text)):
        if hint.start() - _AROUND > end:
            if _DIGIT.search(text, start, end):
                yield start, _end_of_word(text, end)
            start = hint.start() - _AROUND
        end = hint.end() + _AROUND
    if _DIGIT.search(text, start, end):
        yield start, _end_of_word(text, end)


def _end_of_word(text: str, place: int) -> int:
    """Return where the word ends that goes across this place, so that no code is cut."""
    rest = _REST_OF_WORD.match(text, place)
    return place if rest is None else rest.end()


def _is_public(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 40) : match.start("secret")]
    named = list(_CODE_WORD.finditer(before))
    return bool(named) and _PUBLIC.search(before[: named[-1].start()]) is not None
