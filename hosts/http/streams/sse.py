"""Streams of updates as responses: `text/event-stream`, for any number of readers at their own pace.

A reader that falls behind costs no memory: the engine keeps one list of the newest updates for all of them, and a
reader that missed some reads them from the log. One that stops reading is disconnected after `send_seconds`, and can
resume with the id of the last update that it received. A disconnected reader never stops a turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.updates import Update, parse_id
from ....states.errors import EngineClosed, InvalidInput, StoreError, UnknownConversation
from ....states.states import Closed
from ..security.limits import HttpLimits
from .events import BEGINNING, EndReason, end_event, tree_event, update_event

PIECE = 65_536
"""Bytes of an event that are sent at once. uvicorn holds about as many that a client has not read."""

WATCHES_READERS = "watches_readers"
"""A key in the state of a request whose server disconnects a client that does not read."""

logger = logging.getLogger("turnwise.http")


async def update_stream(
    engine: Engine,
    conversation: Conversation,
    after: str | None,
    limits: HttpLimits,
    shown: Callable[[Any], Any] = lambda data: data,
    seen: Callable[[Update], Update] = lambda update: update,
) -> Response:
    """Return the updates of a conversation as a response: first a snapshot, or with `after`, the id of an update, all
    updates since then. The last event is `end`, with a reason, where it can still be sent. Data is `shown` as the
    caller reads it, and of an update the caller sees what `seen` returns.

    Raises `InvalidInput` for an id that is malformed, or that no update has had yet, and `StoreError`.
    """
    updates = conversation.updates(after)
    if after is not None:
        await _check_known(engine, conversation, after)

    def event_of(update: Update) -> bytes:
        return update_event(seen(update), shown)

    return EventStream(_events(updates, event_of, lambda: _end_of(engine, conversation)), limits)


async def _check_known(engine: Engine, conversation: Conversation, after: str) -> None:
    """Raise `InvalidInput` if no update has had this id, in the store either, to which another engine may write."""
    seen = parse_id(after)
    if seen > (conversation.state.book.seq + 1, 0):
        await engine.refresh(conversation.id)
    if seen > (conversation.state.book.seq + 1, 0):
        raise InvalidInput(f"This conversation has had no update {seen[0]}.{seen[1]} yet.")


async def _end_of(engine: Engine, conversation: Conversation) -> EndReason:
    """Return why the updates of a conversation have ended."""
    try:
        known = await engine.get(conversation.id)
    except EngineClosed:
        return "server_stopping"
    except UnknownConversation:
        return "deleted"
    except StoreError:
        return "store_error"
    return "closed" if isinstance(known.state, Closed) else "interrupted"


def tree_stream(
    engine: Engine, owner: str | None, limits: HttpLimits, shown: Callable[[Any], Any] = lambda data: data
) -> Response:
    """Return the updates of all conversations of this owner, or of everybody, as a response. It begins with a snapshot
    of the tree. Raises `InvalidInput` and `EngineClosed`."""
    updates = engine.updates(owner=owner)
    return EventStream(_events(updates, partial(tree_event, shown=shown), _server_stopping), limits)


async def _server_stopping() -> EndReason:
    return "server_stopping"


async def _events(
    updates: AsyncGenerator[Any, None],
    event_of: Callable[[Any], bytes],
    reason: Callable[[], Coroutine[Any, Any, EndReason]],
) -> AsyncIterator[bytes]:
    """Yield the events of a stream, and at last why it ended."""
    yield BEGINNING
    try:
        async with aclosing(updates):
            async for update in updates:
                yield event_of(update)
    except StoreError as error:
        logger.warning("A stream of updates ended, because the log cannot be read: %s", error)
        yield end_event("store_error")
        return
    yield end_event(await reason())


class EventStream(EventSourceResponse):
    """A stream of events, with a comment now and then. A reader that does not read within `send_seconds` is
    disconnected."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], limits: HttpLimits) -> None:
        super().__init__(
            events,
            ping=limits.keep_alive_seconds,
            ping_message_factory=lambda: ServerSentEvent(comment="keep-alive", sep="\n"),
            sep="\n",
        )
        self._send_seconds = limits.send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client has gone. If it does not read, the response ends incomplete, and
        the server closes the connection."""
        is_watched = WATCHES_READERS in scope.get("state", {})
        try:
            await super().__call__(scope, receive, PiecewiseSend(send, None if is_watched else self._send_seconds))
        except TimeoutError:
            sentence = "A client of %r was disconnected: it did not read for %g s."
            logger.warning(sentence, scope["path"], self._send_seconds)


class PiecewiseSend:
    """Sends long events in pieces, each within `seconds`, so that a server holds little of an event that a client reads
    slowly. No other event comes between the pieces of one. Raises `TimeoutError`, unless `seconds` is None."""

    def __init__(self, send: Send, seconds: float | None) -> None:
        self._send = send
        self._seconds = seconds
        self._lock = asyncio.Lock()

    async def __call__(self, message: Message) -> None:
        """Send a message of the response."""
        body: bytes = message.get("body", b"")
        async with self._lock:
            for start in range(0, max(len(body), 1), PIECE):
                async with asyncio.timeout(self._seconds):
                    await self._send(_piece(message, body, start) if body else message)


def _piece(message: Message, body: bytes, start: int) -> Message:
    is_last = start + PIECE >= len(body)
    return {**message, "body": body[start : start + PIECE], "more_body": message.get("more_body", False) or not is_last}
