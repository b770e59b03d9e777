"""Bounds what is read of an HTTP server's response. The SDK bounds only streams of events, and reads any other response
whole."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MAX_MESSAGE = 64_000_000
"""The most bytes of one message from an HTTP server. Chosen to be more than the largest result with images."""

MAX_EXPANSION = 1_000
"""How many times longer a compressed response may become. So long is what `gzip` makes of zeros."""


async def bound(response: httpx2.Response) -> None:
    """Let reading the response fail if it is too long. A compressed one, which nobody asked for, is bounded by what it
    may become."""
    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        return
    is_compressed = response.headers.get("content-encoding", "identity") != "identity"
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream, MAX_MESSAGE // MAX_EXPANSION if is_compressed else MAX_MESSAGE)


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
