"""The guards of the HTTP host in the order in which a request passes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from ....states.errors import ConfigurationError
from .body_limit import BodyLimit
from .host_guard import HostGuard
from .limits import HttpLimits, WrongTokens
from .response_headers import ResponseHeaders
from .tokens import TokenGuard
from .unexpected_errors import UnexpectedErrors

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names that no other site can have: those of the loopback interface."""

_ORIGIN = re.compile(r"https?://[^/\s,*?#@]+", re.IGNORECASE)
_TOKEN = re.compile(r"[!-~]+")
_ADDRESS = re.compile(r"[!-\[\]-~]+")
"""Visible ASCII characters without the backslash, which browsers take for a slash."""


def middleware_of(
    *,
    token: str | None,
    hosts: Sequence[str] | None,
    origins: Sequence[str],
    bound: bool,
    limits: HttpLimits,
    wrong_tokens: WrongTokens,
) -> list[Middleware]:
    """Return the middleware of an application, the outermost first.

    `hosts` are the names under which the server may be addressed; None stands for those of the local machine, or for
    all if `bound`, that is, if callers must say who they are: then another site gains nothing by giving its name to
    this machine, since a browser keeps the session for the name under which it was begun. `origins` are other sites
    whose pages may call the server. Raises `ConfigurationError` for a token or an origin that no request can carry.
    """
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigurationError("A token consists of visible ASCII characters, without spaces.")
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(f"An origin reads like https://example.org, and not {origin!r}.")
    known = LOCAL_HOSTS if hosts is None and not bound else hosts
    cors = Middleware(
        CORSMiddleware,
        allow_origins=[origin.lower() for origin in origins],
        allow_methods=["GET", "HEAD", "POST", "PATCH", "DELETE"],
        allow_headers=["*"],  # clients of other protocols send headers of their own; these origins are trusted anyway
    )
    return [
        Middleware(ResponseHeaders),
        Middleware(HostGuard, known, origins),
        *([cors] if origins else []),
        Middleware(UnexpectedErrors),
        *([] if token is None else [Middleware(TokenGuard, token, wrong_tokens)]),
        Middleware(BodyLimit, limits),
    ]


def check_login_url(url: object) -> None:
    """Raise `ConfigurationError` for an address that a page may not lead people to: one of another scheme than `http`
    and `https`, such as `javascript:`, and one that is neither a whole address nor a path."""
    if url is None:
        return
    if not isinstance(url, str) or not _ADDRESS.fullmatch(url) or not _leads_to_site(url):
        raise ConfigurationError(f"The login_url reads like https://example.org/login or /login, and not {url!r}.")


def _leads_to_site(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme:
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    return not parts.netloc and bool(parts.path) and not url.startswith("//")
