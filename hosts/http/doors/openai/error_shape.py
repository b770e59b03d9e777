"""Gives every refusal below `/v1/` the shape of the OpenAI API, whoever made it: a guard, the router, the validation of
the body, or the engine.

It is the outermost middleware, so that it sees what all others answer.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...problems import MEDIA_TYPE, Problem
from .refusals import error_of, retry_header

PREFIX = "/v1/"


class OpenAiErrors:
    """An ASGI middleware that rewrites problems (RFC 9457) below `/v1/`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or not _path(scope).startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Rewriter(send))


def _path(scope: Scope) -> str:
    """Return the path below the place where the application is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class _Rewriter:
    """Passes messages on, and holds a problem back until it is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._answer(self._start)
        else:
            await self._send(message)

    async def _answer(self, start: Message) -> None:
        problem = Problem.model_validate_json(self._body)
        status, error = error_of(problem)
        body = error.model_dump_json().encode()
        headers = MutableHeaders(raw=list(start["headers"]))
        headers.update({"content-type": "application/json", "content-length": str(len(body))})
        headers.update(retry_header(problem.code))
        self._start = None
        await self._send({**start, "status": status, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})


def _is_problem(start: Message) -> bool:
    media_type = Headers(raw=list(start.get("headers", ()))).get("content-type", "")
    return media_type.partition(";")[0].strip() == MEDIA_TYPE
