"""Reads the messages of servers that keep to the protocol only roughly.

The SDK drops a message that it cannot read, and whoever waits for the answer waits for ever; and it refuses a result
as a whole for one part that the protocol does not know. So what a server meant is read here, before the SDK sees it:
half a character or a byte that is no UTF-8 becomes U+FFFD, an answer without a version or with a bare text as its
result is an answer, several messages in one line are several messages, and a part of a result that nobody knows is
kept as text. What is no message at all stays the SDK's affair, which ignores it.

Over HTTP, the SDK bounds only streams of events, and reads any other response whole. So what is read of a response is
bounded here, and each of its lines is mended before the SDK reads it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import mcp_types
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from mcp_types.methods import parse_server_result
from pydantic import ValidationError
from pydantic_core import from_json

from ..text import encodable_json

_CALL = "tools/call"
_CANCELLED = "notifications/cancelled"
_UNNAMED_ERROR = -32000
"""The code of an error that a server gave without one: the first of those that JSON-RPC leaves to servers."""


def mended(line: bytes) -> bytes:
    """The line as UTF-8 that every JSON parser reads, if it is JSON: with U+FFFD in place of half a character, also
    where that is an escape, and of bytes that are no UTF-8. `Pure.`"""
    if b"\\u" not in line and line.isascii():
        return line
    return encodable_json(line.decode(errors="replace")).encode()


def read_messages(line: bytes) -> Iterator[JSONRPCMessage]:
    """Yield the messages in a line that a server wrote. Raises ValueError if it holds none. `Pure.`"""
    try:
        yield jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        read = from_json(mended(line).removeprefix("\ufeff".encode()))
        for one in read if isinstance(read, list) and read else [read]:
            yield jsonrpc_message_adapter.validate_python(_with_envelope(one), by_name=False)


def _with_envelope(message: Any) -> Any:
    """The message with what JSON-RPC wants of one, as far as it can be told."""
    if not isinstance(message, dict):
        return message
    given = {"jsonrpc": "2.0", **message}
    if "result" in given and not isinstance(given["result"], dict):
        given["result"] = {} if given["result"] is None else {"content": [given["result"]]}
    error = given.get("error")
    if error is not None and not isinstance(error, dict):
        error = {"message": error if isinstance(error, str) else json.dumps(error)}
    if isinstance(error, dict):
        given["error"] = {"code": _UNNAMED_ERROR, "message": "", **error}
    return given


class CallResults:
    """Makes what a server answers to calls of its tools a result that the protocol allows. It is told of each message
    that is sent, so that it knows the calls. `version` is that of the protocol, None until the connection is made."""

    def __init__(self) -> None:
        self.version: str | None = None
        self._calls: set[int | str] = set()

    def note(self, sent: object) -> None:
        """Note a message that is sent to the server. The answer to a call that was cancelled goes to nobody."""
        if isinstance(sent, mcp_types.JSONRPCRequest) and sent.method == _CALL:
            self._calls.add(sent.id)
        elif isinstance(sent, mcp_types.JSONRPCNotification) and sent.method == _CANCELLED and sent.params:
            self._calls.discard(sent.params.get("requestId", ""))

    def take(self, message: object) -> None:
        """Take a message of the server, and change it if it is the answer to a call and is not allowed."""
        if isinstance(message, mcp_types.JSONRPCError):
            self._calls.discard(message.id if message.id is not None else "")
        if not isinstance(message, mcp_types.JSONRPCResponse) or message.id not in self._calls:
            return
        self._calls.discard(message.id)
        content = message.result.get("content")
        if content is not None and not isinstance(content, list):
            return  # what that means cannot be told; it becomes an error
        if self.version is not None and not self._is_allowed(message.result):
            message.result = self._allowed(message.result, content or [])

    def _allowed(self, result: dict[str, Any], content: list[Any]) -> dict[str, Any]:
        """The result in the form that the protocol wants, with what it does not know as text."""
        parts = list(map(self._part, content))
        structured = result.get("structuredContent")
        kept: dict[str, Any] = {"content": parts, "isError": bool(result.get("isError"))}
        if isinstance(structured, dict):
            kept["structuredContent"] = structured
        elif structured is not None:
            parts.append(_text(structured))
        further = {name: result[name] for name in ("resultType",) if name in result}
        return {**further, **kept}

    def _part(self, part: Any) -> Any:
        if isinstance(part, dict) and self._is_allowed({"content": [part]}):
            return part
        if isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        return _text(part)

    def _is_allowed(self, result: dict[str, Any]) -> bool:
        assert self.version is not None
        try:
            parse_server_result(_CALL, self.version, result)
        except (ValidationError, RecursionError):
            return False
        return True


def _text(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text}


MAX_MESSAGE = 64_000_000
"""The most bytes of one message from an HTTP server. Chosen to be more than the largest result with images."""

_MAX_EXPANSION = 1_000
"""How many times longer a compressed response may become. So long is what `gzip` makes of zeros."""


async def bound(response: httpx2.Response) -> None:
    """Let reading the response fail if it is too long. A compressed one, which nobody asked for, is bounded by what it
    may become, and is not mended."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    is_compressed = response.headers.get("content-encoding", "identity") != "identity"
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    if not is_stream:
        stream = _Bounded(stream, MAX_MESSAGE // _MAX_EXPANSION if is_compressed else MAX_MESSAGE)
    response.stream = stream if is_compressed else _Mended(stream)


class _Bounded(httpx2.AsyncByteStream):
    """The same stream, which fails behind so many bytes."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._left -= len(part)
            if self._left < 0:
                raise httpx2.ReadError("The response is too long.")
            yield part

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class _Mended(httpx2.AsyncByteStream):
    """The same stream, each line of which is mended. A line without an end fails."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for part in self._stream:
            searched = len(rest)
            rest += part
            if (end := max(rest.rfind(b"\n", searched), rest.rfind(b"\r", searched)) + 1) > 0:
                whole = bytes(rest[:end])
                del rest[:end]
                yield mended(whole)
            if len(rest) > MAX_MESSAGE:
                raise httpx2.ReadError("The response is too long.")
        if rest:
            yield mended(bytes(rest))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
