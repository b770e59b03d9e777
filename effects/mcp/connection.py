"""The connection to one server: opened in the background, kept up, and opened again when the server vanished.

To open it is to start the server's program, or to make a client for its address, and to agree on a version. The SDK
wants a connection to be left by the task that entered it, so one task owns it from beginning to end. Calls are made
by the tasks of their effects, each over the connection that there is at that moment.

Why a server cannot be reached is said without what it sent or what was sent to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import httpx2
import mcp_types
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.client.session import ElicitationFnT, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import ElicitRequestParams, ElicitResult, Implementation, ToolListChangedNotification
from pydantic import ValidationError

from ...states.values.messages import ToolResult
from ..logs import performer_logger
from ..tools.context import ToolContext, ToolError
from ..tools.results import ResultWithFiles
from ..version import __version__
from .asking import Asker
from .messages import MAX_MESSAGE, CallResults, bound
from .program import stderr_of, streams_of
from .server import McpServer
from .tools import ConnectionLost, ListingFilter, McpCall, ServerTool, ServerTools, list_tools, tools_of

FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0
"""Seconds until a server that vanished is tried again; each delay is twice the one before."""

_STABLE = 60.0
"""Seconds after which a connection that was lost is opened again as soon as the first time."""

_REFRESH = 60.0
"""Seconds after which the tools of an HTTP server are listed again, since such a server may vanish unnoticed."""

PAUSE = 0.05
"""Seconds in which several changes are taken together."""

CLOSING = 8.0
"""Seconds that a server gets to end, which includes those after which it is killed."""

_LOGGER = performer_logger("turnwise.mcp")

_ASKER: ContextVar[Asker | None] = ContextVar("turnwise-mcp-asker", default=None)
"""The asker of the call to which a message from the server belongs, if the transport tells which call that is."""


class McpConnection:
    """The connection to one server of an engine. `changed` is called whenever its tools have changed.

    The caller calls `start`, may wait until the connection `has_been_tried`, and calls `close` in the end.
    """

    def __init__(self, name: str, server: McpServer, changed: Callable[[], None]) -> None:
        self.offered: ServerTools = ServerTools()
        self.failure: str = "it has not answered yet"
        self.has_been_tried: asyncio.Event = asyncio.Event()
        self._name = name
        self._server = server
        self._changed = changed
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None
        self._mode: Mode = "legacy" if _asks_in_calls(server) else "auto"
        self._client: Client | None = None
        self._listed: list[mcp_types.Tool] = []
        self._has_ended = False
        self._wake = asyncio.Event()
        self._askers: set[Asker] = set()
        self._status: int | None = None
        self._noted_unknown_user = False

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """The tools that are offered now."""
        return self.offered.tools

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None

    def start(self) -> None:
        """Begin to connect, and stay connected until it is closed."""
        self._task = asyncio.create_task(self._stay_connected(), name=f"MCP server {self._name}")

    async def close(self) -> None:
        """End the connection, and the program of the server."""
        if self._task is None:
            return
        self._scope.cancel()
        done, _ = await asyncio.wait({self._task}, timeout=CLOSING)
        if not done:
            _LOGGER.warning("%s did not end within %g s", self._name, CLOSING)
            self._task.cancel()

    # --- calls

    async def call(
        self, listed: mcp_types.Tool, may_ask: bool, arguments: dict[str, Any], context: ToolContext
    ) -> ToolResult | ResultWithFiles:
        """Call a tool, and return its result. Raises `ToolError` if there is no connection."""
        if self._client is None:
            raise ToolError(f"The server {self._name} is not connected now.")
        tool = next((tool for tool in self.tools if tool.name == f"{self._name}:{listed.name}"), None)
        key = context.key if tool is not None and tool.crash == "idempotent" else None
        with self._asker(context, may_ask) as asker:
            try:
                return await McpCall(self._client, listed, asker, context, key).run(arguments)
            except ConnectionLost:
                self._wake.set()
                sentence = f"The connection to {self._name} was lost, so it is not known whether the call ran."
                return ToolResult(text=sentence, error=True)

    @contextlib.contextmanager
    def _asker(self, context: ToolContext, may_ask: bool) -> Iterator[Asker]:
        asker = Asker(self._name, context, may_ask)
        self._askers.add(asker)
        token = _ASKER.set(asker)
        try:
            yield asker
        finally:
            _ASKER.reset(token)
            self._askers.discard(asker)
            asker.close()

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Ask the user of the call that the server asks for.

        Older versions of the protocol do not say which call that is. HTTP tells it; a program with several calls under
        way cannot be told apart, and its question must not reach the wrong user.
        """
        asker = _ASKER.get()
        if asker is None and len(self._askers) == 1:
            (asker,) = self._askers
        if asker is None:
            self._note_unknown_user()
            return ElicitResult(action="cancel")
        return await asker.ask(params)

    def _note_unknown_user(self) -> None:
        if not self._noted_unknown_user:
            _LOGGER.warning("%s asks, and it cannot be told which user it means; nobody is asked", self._name)
        self._noted_unknown_user = True

    # --- the connection

    async def _stay_connected(self) -> None:
        with self._scope:
            delay = FIRST_DELAY
            while True:
                began = anyio.current_time()
                try:
                    await self._connect()
                    self._note("the connection was lost")
                except Exception as error:
                    if self._server.protocol == "auto" and self._mode == "legacy" and _refuses_version(error):
                        self._mode = "auto"
                        continue
                    self._note(reason_of(error, self._server, self._status))
                    _LOGGER.debug("%s failed", self._name, exc_info=error)
                    self.has_been_tried.set()
                if anyio.current_time() - began > _STABLE:
                    delay = FIRST_DELAY
                await anyio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY)

    def _note(self, failure: str) -> None:
        if failure != self.failure:
            _LOGGER.warning("The MCP server %s cannot be reached: %s", self._name, failure)
        self.failure = failure

    async def _connect(self) -> None:
        """Connect, and return when the connection has ended. Raises if there is none, or the server stops answering."""
        self._has_ended, self._status, self._noted_unknown_user = False, None, False
        callbacks = Callbacks(self._end, self._take_message, self._elicit, self._note_status)
        with anyio.CancelScope(deadline=anyio.current_time() + self._server.connect_timeout) as limit:
            async with connected(self._name, self._server, self._mode, callbacks) as client:
                listed = await list_tools(client)
                try:
                    await self._offer(client, listed)
                    limit.deadline = math.inf
                    await self._follow(client)
                finally:
                    self._withdraw()
        if limit.cancelled_caught:
            raise TimeoutError

    async def _offer(self, client: Client, listed: list[mcp_types.Tool]) -> None:
        """Offer the listed tools. Their schemas are checked by a thread, since many take seconds."""
        if listed != self._listed:
            self.offered = await asyncio.to_thread(tools_of, self._name, self._server, listed, self.call)
            self._listed = listed
            self._changed()
        if self._client is None:
            _LOGGER.info("%s is connected: %d tools", self._name, len(self.tools))
            self._client = client
            self.failure = ""
            self.has_been_tried.set()

    def _withdraw(self) -> None:
        """Offer nothing, since there is no connection."""
        self._client = None
        if self._listed:
            self.offered, self._listed = ServerTools(), []
            self._changed()

    async def _follow(self, client: Client) -> None:
        """Offer the tools as they change. Returns when the connection has ended; raises if the server stops
        answering."""
        async with anyio.create_task_group() as listening:
            listening.start_soon(self._listen, client)
            while not self._has_ended:
                with anyio.move_on_after(math.inf if self._server.url is None else _REFRESH):
                    await self._wake.wait()
                await anyio.sleep(PAUSE)
                self._wake.clear()
                if not self._has_ended:
                    with anyio.fail_after(self._server.connect_timeout):
                        listed = await list_tools(client)
                    await self._offer(client, listed)
            listening.cancel_scope.cancel()

    async def _listen(self, client: Client) -> None:
        """Wake the owner whenever the server tells that its tools changed, as newer versions of the protocol do."""
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._wake.set()  # there may have been a change before
                    async for _ in changes:
                        self._wake.set()
            except (ListenNotSupportedError, MCPError):
                return
            except SubscriptionLost:
                self._wake.set()
            await anyio.sleep(FIRST_DELAY)

    async def _take_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._wake.set()

    def _end(self) -> None:
        self._has_ended = True
        self._wake.set()

    def _note_status(self, status: int) -> None:
        self._status = status


def _asks_in_calls(server: McpServer) -> bool:
    """Whether the server is to speak a version in which it may ask the user in the middle of a call."""
    return server.protocol == "legacy" or (server.protocol == "auto" and server.elicitation)


_ENDED = "its program ended before it answered; what it printed is logged by turnwise.mcp, at the level DEBUG"


def reason_of(error: BaseException, server: McpServer, status: int | None) -> str:
    """Why the connection failed, as a part of a sentence. `status` is the last HTTP status that refused a request, or
    None. `Pure.`"""
    match error := _first(error):
        case OSError() if not isinstance(error, TimeoutError):
            return _why_not_started(error, server)
        case TimeoutError():
            return f"it did not answer within {server.connect_timeout:g} s"
        case httpx2.ConnectError():
            return "nothing answers at its address"
        case MCPError():
            return _why_refused(error, server, status)
        case ValidationError():
            return "it answers with what the protocol does not allow"
        case _:
            return type(error).__name__


def _why_not_started(error: OSError, server: McpServer) -> str:
    match error:
        case FileNotFoundError() if server.cwd is not None and error.filename == str(server.cwd):
            return f"there is no folder {server.cwd}"
        case FileNotFoundError():
            return f"there is no program called {server.command}"
        case PermissionError():
            return f"{server.command} cannot be started"
        case _:
            return type(error).__name__


def _why_refused(error: MCPError, server: McpServer, status: int | None) -> str:
    if server.command is not None and error.code == mcp_types.CONNECTION_CLOSED:
        return _ENDED
    if status is not None:
        return f"it answered with the HTTP status {status}"
    return f"it answered with the error {error.code}"


def _refuses_version(error: BaseException) -> bool:
    """Whether the server knows none of the versions from before 2026, or not their handshake. `Pure.`"""
    first = _first(error)
    refusals = (mcp_types.UNSUPPORTED_PROTOCOL_VERSION, mcp_types.METHOD_NOT_FOUND)
    return isinstance(first, MCPError) and first.code in refusals


def _first(error: BaseException) -> BaseException:
    """The error itself, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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
