"""Reads the body of a request before the application does: within limits of size and time, and only JSON in UTF-8.

A body that is too large is refused as soon as that is known: by its declared length, or else when more has arrived than
is allowed. So a request holds at most `body_bytes`, for at most `body_seconds`.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..problems import HttpError, ProblemResponse
from .limits import HttpLimits


class BodyLimit:
    """Middleware that hands the application a body that is complete, or refuses the request."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it. A client that disconnects before the end gets nothing."""
        if scope["type"] != "http" or not _has_body(headers := Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(headers, receive)
            if body:
                _check_text(headers, body)
        except HttpError as error:
            await ProblemResponse(error.problem)(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _Replayed(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the body, or None if the client has disconnected. Raises `HttpError`."""
        if _declared_length(headers) > self._limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._collect(receive)
        except TimeoutError:
            raise HttpError("timeout") from None

    async def _collect(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> HttpError:
        return HttpError("too_large", f"The body is larger than {self._limits.body_bytes:,} bytes.")


class _Replayed:
    """What the application receives: the body at once, and then what the server sends."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _declared_length(headers: Headers) -> int:
    """Return the declared length, or 0 for a body that comes in chunks. Raises `HttpError`."""
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdecimal() and len(declared) < 20):
        raise HttpError("malformed_request")
    return int(declared)


def _check_text(headers: Headers, body: bytes) -> None:
    """Raise `HttpError` for a body of another type than JSON, or that is no UTF-8. A page of another site can send some
    other types without asking the server first. JSON holds no NUL; what has one is read as UTF-16 or UTF-32."""
    kind, _, subtype = headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
    if kind != "application" or not (subtype == "json" or subtype.endswith("+json")):
        raise HttpError("unsupported_media_type")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise HttpError("malformed_json") from None
    if "\0" in text:
        raise HttpError("malformed_json")
