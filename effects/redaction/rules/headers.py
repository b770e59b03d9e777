"""Finds credentials in the headers of HTTP: bearer and basic authentication, and cookies."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator

from ..folded_text import fold, lowered
from ..rule import SecretSpan

_HEADER = re.compile(
    r"""\b(?:proxy-)?authorization\b\\{0,2}["']?\s?[:=]\s?\\{0,2}["']?
    (?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256|[\w-]{1,20}+)[ ]{1,3})??
    (?P<secret>[\w.~+/=:-]{6,}+)(?![ \t]*\()""",
    re.VERBOSE | re.IGNORECASE,
)

_WITH_SCHEME = re.compile(
    r"""\b(?:proxy-)?authorization\b\\{0,2}["']?\s?[:=]\s?\\{0,2}["']?
    (?:bearer|basic|token|digest|negotiate|apikey)[ ]{1,3}(?P<secret>[\w.~+/=:-]{6,}+)(?![ \t]*\()""",
    re.VERBOSE | re.IGNORECASE,
)
"""A header whose scheme is known: what stands behind it is rather a credential than a word."""

_BEARER = re.compile(r"\bbearer[ \t:]{1,3}\n?(?P<secret>[\w.~+/=-]{8,}+)", re.IGNORECASE)

_BASIC = re.compile(r"\bbasic[ \t:]{1,3}(?P<secret>[A-Za-z0-9+/]{6,}+={0,2})", re.IGNORECASE)

_COOKIE = re.compile(
    r"""\bcookie\b\\{0,2}["']?\s?:\s?\\{0,2}["']?(?P<secret>[\w.-]{1,100}+=[^\n"'\\\ue000]{1,4000}+)""", re.IGNORECASE
)

_WORDS = frozenset({
    *("required", "needed", "missing", "optional", "invalid", "none", "null", "header", "headers", "failed", "bearer"),
    *("basic", "token", "authentication", "authorization"),
})  # fmt: skip
"""What follows the name of a header where no credential does."""

_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-auth", "x-authorization"})
_COOKIE_HEADERS = frozenset({"cookie", "set-cookie", "cookies"})


def _is_no_word(text: str) -> bool:
    return text.casefold() not in _WORDS


def _is_token(text: str) -> bool:
    return any(map(str.isdigit, text)) or len(text) >= 20


def _is_no_plain_word(text: str) -> bool:
    """Whether this is not just words, perhaps with a capital, at the end of a sentence, or as a placeholder."""
    word = text.rstrip(".:").replace("_", "").replace("-", "")
    return not (word.isalpha() and (word[1:].islower() or word.isupper()))


def _is_pair(text: str) -> bool:
    """Whether this is a user and a password in base64, as basic authentication writes them (RFC 7617)."""
    try:
        return b":" in b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return False


_SCHEMES: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("authorization", _HEADER, _is_no_word),
    ("authorization", _WITH_SCHEME, _is_no_plain_word),
    ("bearer", _BEARER, _is_token),
    ("basic", _BASIC, _is_pair),
    ("cookie", _COOKIE, bool),
)
"""A word in lower case, the pattern to look for in texts with this word, and a check of what it finds."""


class HeaderRule:
    """Finds credentials in headers of HTTP that stand in a text, and in those that are members of a JSON object."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the credentials in a text, without the names of the headers and of the schemes."""
        lower = lowered(text)
        for hint, pattern, is_secret in _SCHEMES:
            if hint in lower:
                for match in pattern.finditer(text):
                    if is_secret(match["secret"]):
                        yield SecretSpan(*match.span("secret"), "TOKEN")

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no credential."""
        header = fold(name).casefold()
        if header in _COOKIE_HEADERS:
            return "TOKEN" if "=" in value else None
        is_secret = header in _SECRET_HEADERS and _is_no_word(value.strip())
        return "TOKEN" if is_secret and (" " in value.strip() or _is_token(value)) else None
