"""Bounds what is read of an HTTP server's response, and makes it text that can be read.

The SDK bounds only streams of events, and reads any other response whole. A message with half a character in it is an
error to the SDK, so each line is mended before it reads it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from .messages import mended

MAX_MESSAGE = 64_000_000
"""The most bytes of one message from an HTTP server. Chosen to be more than the largest result with images."""

MAX_EXPANSION = 1_000
"""How many times longer a compressed response may become. So long is what `gzip` makes of zeros."""


async def bound(response: httpx2.Response) -> None:
    """Let reading the response fail if it is too long. A compressed one, which nobody asked for, is bounded by what it
    may become, and is not mended."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    is_compressed = response.headers.get("content-encoding", "identity") != "identity"
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    if not is_stream:
        stream = _Bounded(stream, MAX_MESSAGE // MAX_EXPANSION if is_compressed else MAX_MESSAGE)
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
