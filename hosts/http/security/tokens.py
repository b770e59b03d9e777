"""Refuses callers without the token of the server.

The token comes as a bearer token (RFC 6750) or as the session cookie of a browser that presented it before. Everything
needs it but the files of the page, which ask for the token, the health check, and the endpoint that begins a session.
"""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ....states.errors import ConfigurationError
from ..problems import HttpError
from .limits import WrongTokens
from .refusal import refuse
from .session_cookie import has_session, is_token

SHORTEST = 20
"""Characters of a token that others can try to guess. Made at random it has 66 bits if these are digits alone, and more
otherwise; OWASP asks for 64 of the id of a session."""

FEWEST = 6
"""How many different characters such a token has. Of 10,000 that are made of 20 random digits, three have fewer."""

PUBLIC = ("/", "/health", "/session")
PUBLIC_FOLDER = "/page/"


class TokenGuard:
    """Middleware that refuses requests without the token, before their bodies are read."""

    def __init__(self, app: ASGIApp, token: str, wrong: WrongTokens) -> None:
        self._app = app
        self._token = token
        self._wrong = wrong

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        connection = HTTPConnection(scope) if scope["type"] != "lifespan" else None
        if connection is None or is_public(scope) or knows_token(connection, self._token):
            await self._app(scope, receive, send)
        elif "authorization" in connection.headers:
            await refuse(self._wrong.refusal(connection), scope, receive, send)
        else:
            await refuse(HttpError("unauthorized"), scope, receive, send)


def is_public(scope: Scope) -> bool:
    """Return whether a path needs no token. `Pure.`"""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["type"] == "http" and (path in PUBLIC or path.startswith(PUBLIC_FOLDER))


def knows_token(connection: HTTPConnection, token: str) -> bool:
    """Return whether a request presents the token, or a session that was begun with it. A bearer token that is wrong is
    refused, whatever the session is."""
    authorization = connection.headers.get("authorization")
    if authorization is None:
        return has_session(connection, token)
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and is_token(given.strip(), token)


def check_hard_to_guess(token: str) -> None:
    """Raise `ConfigurationError` for a token that others could guess who can reach the server: a short one, or one that
    repeats itself. `Pure.`"""
    repeats = token in (token + token)[1:-1]
    if len(token) < SHORTEST or len(set(token)) < FEWEST or repeats:
        raise ConfigurationError(
            f"A token that others must not guess is random and has at least {SHORTEST} characters: make one by"
            " `openssl rand -hex 32`."
        )
