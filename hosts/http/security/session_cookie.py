"""Sessions of browsers, which cannot send a bearer token with every request: an `EventSource` sets no headers.

A browser exchanges the token for a cookie. The cookie holds when it expires and a signature, made with a key that is
derived from the token by a slow function: whoever reads the cookie cannot compute the token. Nothing is stored, so a
session outlives a restart of the server, and ends when the token is changed.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from functools import lru_cache
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from .limits import WrongTokens

COOKIE = "turnwise_session"

LIFETIME = 30 * 24 * 3600
"""Seconds until a browser has to send the token again."""


def set_session(response: Response, request: Request, given: str, token: str | None, wrong: WrongTokens) -> None:
    """Let a response begin a session for a caller that has `given` the token. Without a token there are no sessions,
    and nothing is set. Raises `HttpError` for a token that is wrong."""
    if token is None:
        return
    if not is_token(given, token):
        raise wrong.refusal(request)
    expires = int(time.time()) + LIFETIME
    _set_cookie(response, request, f"{expires}.{_signature(token, expires)}", LIFETIME)


def clear_session(response: Response, request: Request) -> None:
    """Let a response end the session of a browser."""
    _set_cookie(response, request, "", 0)


def _set_cookie(response: Response, request: Request, value: str, seconds: int) -> None:
    response.set_cookie(
        COOKIE,
        value,
        max_age=seconds,
        path=_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def has_session(connection: HTTPConnection, token: str) -> bool:
    """Return whether a request comes with a cookie that was made for this token and has not expired. A browser sends
    several of the name if several applications of one host have sessions, one below the path of another."""
    given = (
        pair.strip().partition("=") for header in connection.headers.getlist("cookie") for pair in header.split(";")
    )
    return any(_is_valid(value.strip(' "'), token) for name, _, value in given if name.strip() == COOKIE)


def _is_valid(cookie: str, token: str) -> bool:
    expires, _, signature = cookie.partition(".")
    if not (expires.isascii() and expires.isdecimal() and len(expires) < 20 and int(expires) > time.time()):
        return False
    return hmac.compare_digest(signature.encode(errors="replace"), _signature(token, int(expires)).encode())


def is_token(given: str, token: str) -> bool:
    """Return whether this is the token, in a time that does not tell how much of it is right. `Pure.`"""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _path(request: Request) -> str:
    """Return the path below which the cookie is sent: where the application is mounted."""
    path: str = request.scope.get("root_path", "")
    return quote(path.rstrip("/")) or "/"


def _signature(token: str, expires: int) -> str:
    return hmac.new(_key(token), str(expires).encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=16)
def _key(token: str) -> bytes:
    """Return the key for this token. scrypt with these costs takes some 50 ms and 16 MB (RFC 7914)."""
    return hashlib.scrypt(token.encode(), salt=b"turnwise session cookie", n=2**14, r=8, p=1)
