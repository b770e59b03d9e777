"""Opens the connection to a server: starts its program, or makes a client for its address, and agrees on a version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.session import ElicitationFnT, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import Implementation

from ..version import __version__
from .http_responses import MAX_MESSAGE, bound
from .listing import ListingFilter
from .messages import CallResults
from .program import streams_of
from .server import McpServer
from .stderr_log import stderr_of

_WRITE_TIMEOUT = 30.0
"""Seconds to connect to an HTTP server, and to send it a request. How long an answer may take is up to the caller."""


Mode = Literal["legacy", "auto"]
"""The versions that the SDK proposes: those from before 2026, or the newest one and then those."""


@dataclass(frozen=True)
class Callbacks:
    """What a connection calls: `ended` at its end, `message` with each message, `elicit` when the server asks the user,
    and `refused` with the HTTP status of an error."""

    ended: Callable[[], None]
    message: MessageHandlerFnT
    elicit: ElicitationFnT
    refused: Callable[[int], None]

    async def take_response(self, response: httpx2.Response) -> None:
        """Tell the status of an HTTP response that is an error."""
        if response.is_error:
            self.refused(response.status_code)


@asynccontextmanager
async def connected(name: str, server: McpServer, mode: Mode, callbacks: Callbacks) -> AsyncIterator[Client]:
    """The connected client of a server, which speaks a version of this `mode`.

    The context must be left by the task that entered it; a program is ended then, with all processes that it started.
    Raises what the SDK raises if there is no such server. The caller limits the time.
    """
    async with AsyncExitStack() as stack:
        if server.url is None:
            streams = streams_of(_program(server), await stack.enter_async_context(stderr_of(name)))
        else:
            timeout = httpx2.Timeout(_WRITE_TIMEOUT, read=None)
            hooks = {"response": [callbacks.take_response, bound]}
            headers = {"accept-encoding": "identity", **server.headers}
            http_client = httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks)
            await stack.enter_async_context(http_client)
            streams = streamable_http_client(server.url, http_client=http_client, max_sse_event_size=MAX_MESSAGE)
        listings, results = ListingFilter(name, is_trusted=server.trusted), CallResults()
        client = Client(
            _observed(streams, callbacks.ended, listings, results),
            mode=mode,
            cache=None,
            client_info=Implementation(name="turnwise", version=__version__),
            message_handler=callbacks.message,
            elicitation_callback=callbacks.elicit if server.elicitation else None,
        )
        await stack.enter_async_context(client)
        listings.version = results.version = client.protocol_version
        yield client


def _program(server: McpServer) -> StdioServerParameters:
    assert server.command is not None
    return StdioServerParameters(
        command=server.command,
        args=list(server.args),
        env=dict(server.env),
        cwd=server.cwd,
        encoding_error_handler="replace",
    )


@asynccontextmanager
async def _observed(
    streams: AbstractAsyncContextManager[tuple[Any, Any]],
    ended: Callable[[], None],
    listings: ListingFilter,
    results: CallResults,
) -> AsyncIterator[Any]:
    """The same streams; `ended` is called when the one from the server ends, and `listings` and `results` take its
    messages."""
    async with streams as (reading, writing):
        yield _Incoming(reading, ended, listings, results), _Outgoing(writing, results)


class _Wrapped:
    """A stream of the SDK, which is closed with what stands around it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return await self._stream.__aexit__(kind, error, trace)


class _Outgoing(_Wrapped):
    """The stream of messages to a server, of each of which `results` is told."""

    def __init__(self, stream: Any, results: CallResults) -> None:
        super().__init__(stream)
        self._results = results

    async def send(self, given: Any) -> None:
        """Send a message."""
        if isinstance(given, SessionMessage):
            self._results.note(given.message)
        await self._stream.send(given)


class _Incoming(_Wrapped):
    """The stream of messages from a server, which passes each through `listings` and `results`, and calls `ended` at
    its end. The SDK itself tells only callers that wait for an answer."""

    def __init__(self, stream: Any, ended: Callable[[], None], listings: ListingFilter, results: CallResults) -> None:
        super().__init__(stream)
        self._ended = ended
        self._listings = listings
        self._results = results

    @property
    def last_context(self) -> Any:
        """The context variables of the task that received the last message, where the stream knows them."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return await self._stream.receive()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            received = await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended()
            raise
        if isinstance(received, SessionMessage):
            self._listings.take(received.message)
            self._results.take(received.message)
        return received
