"""Which methods a path supports, for the header `Allow` of a refusal (RFC 9110, section 15.5.6), and HEAD, which every
path supports that supports GET.

The router asks one route after the other, and refuses with the methods of the first that has the path. A path may have
a route for each of its methods.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import FastAPI, Request, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..problems import ProblemResponse, http_problem

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def name_methods(app: FastAPI) -> None:
    """Let the app name all methods of a path when it refuses another one."""
    app.add_exception_handler(405, _refuse)


async def _refuse(request: Request, error: Exception) -> Response:
    return ProblemResponse(http_problem("method_not_allowed"), {"allow": ", ".join(_allowed(request))})


def _allowed(request: Request) -> Iterator[str]:
    """Yield the methods for which a route has the path of the request."""
    for method in METHODS:
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            yield method


class HeadAnswers:
    """Middleware that answers HEAD as GET would be answered, without the body (RFC 9110, section 9.3.2). A stream ends
    at once. It is the outermost, so that guards and endpoints know GET alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_head)
        else:
            await self._app(scope, receive, send)
