"""Finds one-time codes, PINs and the check numbers of cards by the words around them.

Digits alone are no code, and not every code is secret: those of errors, places, countries, shops and programs are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..folded_text import fold, lowered
from ..rule import SecretSpan

_KINDS = (
    r"verification|verify|verifying|security|log[_\s-]?in|sign[_\s-]?in|sign[_\s-]?on|authentication|authenticator|authorization"
    r"|auth|confirmation|access|one[_\s-]?time|single[_\s-]?use|2fa|mfa|two[_\s-]?factor|sms|text|activation|recovery|backup"
    r"|reset|unlock|door|alarm|gate|pairing|bank|secret|temporary|card|otp|pin|entry|safe"
)
_NAMES = (
    rf"(?:{_KINDS})[_\s-]?(?:pass)?code",
    r"(?:one[_-]?time|one time|security|card)[_-](?:password|number|pin)",
    r"(?:one[_-]?time|one time|security|card) (?:password|number|pin)",
    r"authenticator(?:\sapp)?",
    r"\b(?:otp|totp|pin|cvv2?|cvc2?|csc|(?-i:TAN)|mfa|2fa|passcode|pincode|pin[_\s-]?(?:code|number))\b",
    *(r"kertakäyttökoodi\w*", r"vahvistuskoodi\w*", r"tunnusluku\w*", r"pin-?koodi\w*", r"turvakoodi\w*"),
    *(r"bestätigungscode", r"sicherheitscode", r"einmalcode", r"code de (?:vérification|sécurité|confirmation)"),
    *(
        r"código de (?:verificación|seguridad|confirmación)",
        r"код(?: подтверждения)?",
        r"验证码",
        r"驗證碼",
        r"認証コード",
    ),
    *(r"인증번호", r"engångskod\w*", r"verifieringskod\w*"),
)
_NAME = "|".join(fold(name).replace(" ", r"\s") for name in _NAMES)

_DIGITS = (
    r"(?:[A-Z]-)?\d{4,8}|\d{3}[ -]\d{3,4}|\d{2}[ -]\d{2}[ -]\d{2}|\d[ -]\d[ -]\d[ -]\d(?:[ -]\d){0,4}|\d{4}[ -]\d{4}"
)
_LETTERS = r"(?=[A-Za-z-]{0,9}\d)(?:[A-Z0-9]{4,10}|[A-Z0-9]{3,5}-[A-Z0-9]{3,5}|[a-z0-9]{6,10})"
_END = r"(?![\w-]|[.,:/]\d|\s?%)"

_BEHIND = re.compile(
    rf"""(?:{_NAME})s?\b[\s"'`*)\]]{{0,3}}
    (?:(?:(?:they|you|we|i|he|she|it|that|which|just|for|to|from|in|me|us|my|your|the|this|sent|texted|sign|log|got|is|are|was|below
    |now|number|code|today|acme|google|apple|bank|account|login|new|on|ist|est|es|är|lautet|lauten|shows|displays|reads|says)\b|[a-z]{{1,12}}(?='s))(?:[ ]{{1,2}}|(?=:))){{0,7}}+
    [\s:=\#>"'`*(\[-]{{0,5}}(?P<secret>{_DIGITS}|(?-i:{_LETTERS})){_END}""",
    re.VERBOSE | re.IGNORECASE,
)
"""A code behind its name, perhaps with a few words between them."""

_SHORT_BEHIND = re.compile(
    rf"\b(?:cvv2?|cvc2?|csc|security (?:code|number))\b[\s:=\"'(is]{{1,6}}(?P<secret>\d{{3}}){_END}", re.IGNORECASE
)

_OWN = re.compile(
    rf"\b(?:your|my|the|ihr|koodi(?:si)?|dein)\b[ ]{{1,2}}(?:[\w'-]{{1,20}}[ ]{{1,2}}){{0,2}}?(?:code|koodi|kod|passcode|pin)\b(?:[ ](?:is|=|on|ist|lautet|est|es)|:)"
    rf"\s{{0,3}}[\"'`*(\[]{{0,2}}(?P<secret>{_DIGITS}|(?-i:{_LETTERS})){_END}",
    re.IGNORECASE,
)
"""A code that belongs to somebody: "your Acme code is 482913"."""

_BEFORE = re.compile(
    rf"""(?<![\w.,:/-])(?P<secret>(?-i:{_LETTERS})|{_DIGITS})(?![\w-])["'`*)\]]{{0,2}}[ ]{{1,2}}
    (?:(?:is|as|ist|on|est|es|to)[ ])?(?:(?:your|my|the|ihr|dein|one-time|otp|sinun)[ ]{{1,2}})
    (?:[\w'-]{{1,20}}[ ]{{1,2}}){{0,3}}?(?:{_NAME}|code\b|koodi)""",
    re.VERBOSE | re.IGNORECASE,
)
"""A code in front of its name: "482913 is your code"."""

_TO_USE = re.compile(
    rf"""\b(?:use|enter|type|käytä|syötä)[ ]{{1,2}}(?:(?:the|this|code)[ ]{{1,2}}){{0,2}}["'`*]{{0,2}}(?P<secret>{_DIGITS})["'`*]{{0,2}}
    [ ]{{1,2}}(?:to|for|as)[ ]{{1,2}}(?:(?:your|the|a)[ ])?(?:log|sign|verif|confirm|authent|complete|reset|unlock|access|two|one)""",
    re.VERBOSE | re.IGNORECASE,
)

_BARE = re.compile(rf"\bcode[ :=#]{{1,3}}[\"'`*(]{{0,2}}(?P<secret>\d{{6}}|\d{{3}}[ -]\d{{3}}){_END}", re.IGNORECASE)
"""The six digits that most services send, behind "code" alone."""

_PUBLIC = re.compile(
    r"""(?:error|exit|zip|post(?:al)?|country|area|status|product|promo|discount|coupon|voucher|item|order|source|dress|color
    |colour|currency|sort|qr|bar|gate|language|airport|response|http|return|build|course|dial(?:l?ing)?|city|state|tax
    |swift|referral|invite|gift|part|article|stock|hs|hts|sic|naics|icd|cpt|model|serial|tariff|asset|ticker|unit|site|store|shop|job|event|track|ticket|booking|reference|tracking|department|cost|account|customer)$""",
    re.VERBOSE | re.IGNORECASE,
)
"""What stands in front of "code" where the code is none of a person."""

_CODE_WORD = re.compile(r"[\s:]+(?:codes?|koodi)\b", re.IGNORECASE)

_FIELD = re.compile(
    r"(?:otp|totp|pin|pin_?code|passcode|cvv2?|cvc2?|csc|tan|(?:mfa|2fa|sms|verification|security|one_?time|login|auth|access"
    r"|confirmation|activation|recovery|backup)_?(?:code|pin|password)s?)",
    re.IGNORECASE,
)
_FIELD_VALUE = re.compile(rf"\d{{3,10}}|{_DIGITS}|[A-Za-z0-9-]{{4,12}}")

_HINTS = re.compile(
    "|".join(
        map(
            fold,
            (
                "code",
                "koodi",
                "kod",
                "код",
                "验证码",
                "驗證碼",
                "コード",
                "인증번호",
                "pin",
                "otp",
                "tan",
                "cvv",
                "cvc",
            ),
        )
    )
    + "|verif|unlock|sign in|log in|authenticator|csc|2fa|mfa|tunnusluku|one-time|one time|security|código|digo de"
)
"""Words for codes, or the beginnings of such words, in lower case."""

_AROUND = 120
"""Characters before and behind such a word in which its code stands."""

_DIGIT = re.compile(r"[0-9]")


class CodeRule:
    """Finds codes in a text, and knows which members of a JSON object are codes by their names."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the codes in a text."""
        for start, end in _places_of_names(text):
            for pattern in (_BEHIND, _SHORT_BEHIND, _OWN, _BEFORE, _TO_USE, _BARE):
                for match in pattern.finditer(text, start, end):
                    if not _is_public(match):
                        yield SecretSpan(*match.span("secret"), "CODE")

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no code."""
        camel = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_")
        is_code = _FIELD.fullmatch(camel) and _FIELD_VALUE.fullmatch(fold(value.strip()))
        return "CODE" if is_code and any(map(str.isdigit, value)) else None


def _places_of_names(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that have both a digit and a word for codes."""
    start = end = -1
    for hint in _HINTS.finditer(lowered(text)):
        if hint.start() - _AROUND > end:
            if _DIGIT.search(text, max(start, 0), max(end, 0)):
                yield start, end
            start = max(0, hint.start() - _AROUND)
        end = hint.end() + _AROUND
    if end > 0 and _DIGIT.search(text, start, end):
        yield start, end


def _is_public(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 40) : match.start("secret")]
    named = list(_CODE_WORD.finditer(before))
    return bool(named) and _PUBLIC.search(before[: named[-1].start()]) is not None
