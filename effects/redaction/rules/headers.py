"""Finds credentials in the headers of HTTP: bearer and basic authentication, and cookies."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator

from ..folded_text import fold, lowered
from ..rule import SecretSpan

_HEADER = re.compile(
    r"""\b(?:proxy-)?authorization\b\\{0,2}["']?\s?[:=]\s?\\{0,2}["']?
    (?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256|[\w-]{1,20}+)[ ]{1,3})??
    (?P<secret>[\w.~+/=:-]{6,}+)(?![ \t]*\()""",
    re.VERBOSE | re.IGNORECASE,
)

_BEARER = re.compile(r"\bbearer[ \t:]{1,3}\n?(?P<secret>[\w.~+/=-]{8,}+)", re.IGNORECASE)

_BASIC = re.compile(r"\bbasic[ \t:]{1,3}(?P<secret>[A-Za-z0-9+/]{6,}+={0,2})", re.IGNORECASE)

_COOKIE = re.compile(
    r"\bcookie\b\\{0,2}[\"']?\s?:\s?\\{0,2}[\"']?(?P<secret>[\w.-]{1,100}+=[^\n\"'\\\ue000]{1,4000}+)", re.IGNORECASE
)

_WORDS = frozenset(
    "required needed missing optional invalid none null header headers failed bearer basic token".split()
)


_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-auth", "x-authorization"})
_COOKIE_HEADERS = frozenset({"cookie", "set-cookie", "cookies"})


class HeaderRule:
    """Finds credentials in headers of HTTP that stand in a text, and in those that are members of a JSON object."""

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the credentials in a text, without the names of the headers and of the schemes."""
        lower = lowered(text)
        if "authorization" in lower:
            for match in _HEADER.finditer(text):
                if match["secret"].casefold() not in _WORDS:
                    yield SecretSpan(*match.span("secret"), "TOKEN")
        if "bearer" in lower:
            for match in _BEARER.finditer(text):
                if _is_token(match["secret"]):
                    yield SecretSpan(*match.span("secret"), "TOKEN")
        if "basic" in lower:
            for match in _BASIC.finditer(text):
                if _is_pair(match["secret"]):
                    yield SecretSpan(*match.span("secret"), "TOKEN")
        if "cookie" in lower:
            yield from (SecretSpan(*match.span("secret"), "TOKEN") for match in _COOKIE.finditer(text))

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of a member of a JSON object, or None if it is no credential."""
        header = fold(name).casefold()
        if header in _COOKIE_HEADERS:
            return "TOKEN" if "=" in value else None
        is_secret = header in _SECRET_HEADERS and value.strip().casefold() not in _WORDS
        return "TOKEN" if is_secret and (" " in value.strip() or _is_token(value)) else None


def _is_token(text: str) -> bool:
    return any(map(str.isdigit, text)) or len(text) >= 20


def _is_pair(text: str) -> bool:
    """Whether this is a user and a password in base64, as basic authentication writes them (RFC 7617)."""
    try:
        return b":" in b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return False
