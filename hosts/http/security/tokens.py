"""Refuses callers without the token of the server.

The token comes as a bearer token (RFC 6750) or as the session cookie of a browser that presented it before. Everything
needs it but the files of the page, which ask for the token, the health check, and the endpoint that begins a session.
"""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from .refusal import refuse
from .session_cookie import has_session, is_token

PUBLIC = ("/", "/health", "/session")
PUBLIC_FOLDER = "/page/"


class TokenGuard:
    """Middleware that refuses requests without the token, before their bodies are read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan" or is_public(scope) or knows_token(HTTPConnection(scope), self._token):
            await self._app(scope, receive, send)
        else:
            await refuse("unauthorized", scope, receive, send)


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
