"""Finds secrets in web addresses: passwords in front of the host, and tokens in parameters and paths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..rule import SecretSpan

_USER = re.compile(r"://(?P<user>[^\s/?#@:\"'<>\ue000]{0,100}+)(?::(?P<secret>[^\s/?#\"'<>\ue000]{1,200}))?@")

_PARAMETER = re.compile(
    r"""(?<=[?&;\#])(?:
    (?P<strong>(?:[\w.-]{0,40}[_.-])??(?:token|secret|password|passwd|pwd|pass|signature|sig|credential|api_?key|apikey
        |access_?key|auth_?key|subscription-key|jwt|otp|totp|session_?id|sessionid|phpsessid|jsessionid|sid
        |saml(?:request|response)|assertion|ticket|magic|invite|code_verifier|client_secret|x-amz-(?:signature|credential))
    )|(?P<weak>key|code|auth|session|hash|hmac|nonce))
    =(?P<secret>[^&;\#\s"'<>\\\ue000]{3,2000}+)""",
    re.VERBOSE | re.IGNORECASE,
)

_PATH = re.compile(
    r"""/(?:[\w-]{0,20}-)?(?:token|reset|verify|verification|invite|invitation|magic|magic-?link|confirm|activate|auth|login
    |unsubscribe|webhooks/\d{5,25}|session)[\w-]{0,20}+/(?P<secret>[\w.~+=%-]{12,}+)""",
    re.VERBOSE | re.IGNORECASE,
)

_SHORTEST_WEAK = 8
"""Characters. A shorter value of a parameter with an ordinary name is rather a word or a number."""


def find_secrets_of_addresses(text: str) -> Iterator[SecretSpan]:
    """Yield the passwords and tokens in web addresses."""
    if "://" in text:
        yield from _find_users(text)
    if "=" in text and ("?" in text or "&" in text or "#" in text or ";" in text):
        for match in _PARAMETER.finditer(text):
            value = match["secret"]
            if match["weak"] is None or (len(value) >= _SHORTEST_WEAK and any(map(str.isdigit, value))):
                yield SecretSpan(*match.span("secret"), "TOKEN")
    if "/" in text:
        for match in _PATH.finditer(text):
            value = match["secret"]
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not _is_slug(value):
                yield SecretSpan(*match.span("secret"), "TOKEN")


def _find_users(text: str) -> Iterator[SecretSpan]:
    for match in _USER.finditer(text):
        if match["secret"] is not None:
            yield SecretSpan(*match.span("secret"), "PASSWORD")
        elif len(match["user"]) >= 20 and any(map(str.isdigit, match["user"])):
            yield SecretSpan(*match.span("user"), "TOKEN")


def _is_slug(value: str) -> bool:
    """Whether this is the title of a page, in words with hyphens between them."""
    parts = value.split("-")
    return len(parts) > 2 and sum(part.isalpha() or part.isdigit() for part in parts) > len(parts) / 2
