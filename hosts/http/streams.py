"""Updates as they happen, over HTTP: the streams of one conversation and of all conversations of an owner.

A stream is a response of the type `text/event-stream`, for any number of readers at their own pace.

A reader that falls behind costs no memory: the engine keeps one list of the newest updates for all of them, and a
reader that missed some reads them from the log. One that stops reading is disconnected after `send_seconds`, and can
resume with the id of the last update that it received. A disconnected reader never stops a turn.

One update looks like this in a stream:

    id: 12.3
    event: message
    data: {"type":"message","id":"12.3","data":{…}}

Only stored updates have an id, so a client that resumes after the last id it received misses nothing that is stored.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from math import isfinite
from typing import Annotated, Any, Literal, Union, get_args

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field, GetJsonSchemaHandler, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.types import Message, Receive, Scope, Send

from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...engine.json_forms import DescribedBy
from ...engine.updates import AnyTreeUpdate, TreeSnapshotUpdate, TreeUpdate, Update, parse_id
from ...states.errors import EngineClosed, InvalidInput, StoreError, UnknownConversation
from ...states.states import Closed
from ...states.values.value import encodable
from .dependencies import CONVERSATION, CurrentCaller, CurrentEngine, CurrentHost, TheConversation
from .problems import problems
from .schemas import Answer, EventsOf, named
from .security import HttpLimits

PIECE = 65_536
"""Bytes of an event that are sent at once. uvicorn holds about as many that a client has not read."""

logger: logging.Logger = logging.getLogger("turnwise.http")


async def update_stream(
    engine: Engine,
    conversation: Conversation,
    after: str | None = None,
    limits: HttpLimits | None = None,
    shown: Callable[[Any], Any] = lambda data: data,
    seen: Callable[[Update], Update] = lambda update: update,
) -> Response:
    """Return the updates of a conversation as a response: first a snapshot, or with `after`, the id of an update, all
    updates since then. The last event is `end`, with a reason, where it can still be sent. Data is `shown` as the
    caller reads it, and of an update the caller sees what `seen` returns.

    An application whose endpoints are its own returns it from one of them. Whether the caller may see the conversation
    is for the application to decide.

    Raises `InvalidInput` for an id that is malformed, or that no update has had yet, and `StoreError`.
    """
    updates = conversation.updates(after)
    if after is not None:
        await _check_known(engine, conversation, after)

    def event_of(update: Update) -> bytes:
        return _update_event(seen(update), shown)

    return EventStream(_events(updates, event_of, lambda: _end_of(engine, conversation)), limits or HttpLimits())


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
    return EventStream(_events(updates, partial(_tree_event, shown=shown), _server_stopping), limits)


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
        yield _end_event("store_error")
        return
    yield _end_event(await reason())


class EventStream(EventSourceResponse):
    """A stream of events, with a comment now and then. A reader that does not read within `send_seconds` is
    disconnected. `on_disconnect` is called if the client disconnects before the end."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        limits: HttpLimits,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(
            events,
            client_close_handler_callable=None if on_disconnect is None else lambda _: on_disconnect(),
            ping=limits.keep_alive_seconds,
            ping_message_factory=lambda: ServerSentEvent(comment="keep-alive", sep="\n"),
            sep="\n",
        )
        self._send_seconds = limits.send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client has gone. If it does not read, the response ends incomplete, and
        the server closes the connection."""
        try:
            await super().__call__(scope, receive, PiecewiseSend(send, self._send_seconds))
        except TimeoutError:
            sentence = "A client of %r was disconnected: it did not read for %g s."
            logger.warning(sentence, scope["path"], self._send_seconds)


class PiecewiseSend:
    """Sends long events in pieces, each within `seconds`, so that a server holds little of an event that a client reads
    slowly. No other event comes between the pieces of one. Raises `TimeoutError`."""

    def __init__(self, send: Send, seconds: float) -> None:
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


EndReason = Literal["server_stopping", "closed", "deleted", "interrupted", "store_error"]
"""Why a stream ends: the server stops; the conversation is closed, or was deleted, and has no more updates; following
it was interrupted, or its log cannot be read. A client reconnects unless the conversation is closed or deleted."""

BEGINNING = b"retry: 1000\n\n"
"""The first bytes of a stream: a client that loses the connection tries again after this many milliseconds."""


def _update_event(update: Update, shown: Callable[[Any], Any]) -> bytes:
    """Return an update as an event. Its data is `shown` as the caller may read it. `Pure.`"""
    return _event(update.type, {"type": update.type, "id": update.id, "data": shown(update.data)}, update.id)


def _tree_event(update: TreeUpdate, shown: Callable[[Any], Any]) -> bytes:
    """Return an update of a tree as an event, `shown` as the caller may read it. It has no id: every stream of a tree
    begins with a snapshot. `Pure.`"""
    return _event("tree", shown(update.data))


def _end_event(reason: EndReason) -> bytes:
    """Return the last event of a stream. `Pure.`"""
    return _event("end", {"type": "end", "id": None, "data": {"reason": reason}})


def data_line(data: Any) -> bytes:
    """Return JSON as the line `data` of an event, for the streams of all protocols, whatever it holds. A number that is
    not finite, which JSON does not have, becomes null. `Pure.`"""
    try:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"))
    return text_line(text)


def text_line(text: str) -> bytes:
    """Return what is JSON already as the line `data` of an event. `Pure.`

    JSON escapes line breaks; it need not escape the three characters that many programs split lines at as well. Half a
    character (a lone surrogate) is replaced.
    """
    line = f"data: {text}\n"
    return line.encode() if line.isascii() else encodable(line).translate(_LINE_BREAKS).encode()


_LINE_BREAKS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def _finite(data: Any) -> Any:
    """JSON with null in place of numbers that are not finite."""
    match data:
        case float():
            return data if isfinite(data) else None
        case dict():
            return {name: _finite(value) for name, value in data.items()}
        case list() | tuple():
            return [_finite(value) for value in data]
        case _:
            return data


def _event(kind: str, data: dict[str, Any], event_id: str | None = None) -> bytes:
    """Return the text of an event."""
    identity = "" if event_id is None else f"id: {event_id}\n"
    return f"{identity}event: {kind}\n".encode() + data_line(data) + b"\n"


class _DataOf(DescribedBy):
    """Metadata of a type: its schema is that of the `data` of an update."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        update = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(schema, handler))
        data: JsonSchemaValue = update["properties"]["data"]
        return data


def _in_tree(kind: Any) -> type[BaseModel]:
    """An update of one conversation, as the stream of a tree has it."""
    fields: dict[str, Any] = {
        "conversation_id": (None if kind is TreeSnapshotUpdate else str, ...),
        "type": (Literal[kind.type], ...),
        "data": (Annotated[Any, _DataOf(lambda: kind)], ...),
    }
    return create_model(f"{kind.__name__}OfTree", __doc__=f"The update `{kind.type}` of a conversation.", **fields)


_TREE: tuple[Any, ...] = tuple(map(_in_tree, get_args(AnyTreeUpdate)))
_TREE_UPDATE: Any = Annotated[Union[_TREE], Field(discriminator="type")]  # noqa: UP007


UPDATE = named(
    "Update", Annotated[Update, Field(discriminator="type")], "An update of a conversation; `type` tells what it is."
)
TREE_UPDATE = named("TreeUpdate", _TREE_UPDATE, "An update of a conversation of a tree of agents.")


class EndData(Answer):
    """Why the stream ended. Unless the conversation is closed or deleted, a client follows it again."""

    reason: EndReason


class End(Answer):
    """The last event of a stream, where it can still be sent."""

    type: Literal["end"]
    id: None
    data: EndData


_UpdateEvents = Annotated[str, EventsOf(lambda: UPDATE | End)]
"""A stream of updates of one conversation."""

_TreeEvents = Annotated[str, EventsOf(lambda: TREE_UPDATE | End)]
"""A stream of updates of many conversations."""

router: APIRouter = APIRouter(tags=["updates"])

_LastEventId = Annotated[
    str | None,
    Header(alias="last-event-id", description="The id of the last event that was received: what follows it is sent."),
]
_LastEventIdOfQuery = Annotated[
    str | None,
    Query(alias="last_event_id", description="The same, for clients that cannot send the header, which wins."),
]


@router.get(
    f"{CONVERSATION}/events",
    operation_id="followConversation",
    status_code=200,
    response_class=EventStream,
    responses={200: {"model": _UpdateEvents, "description": "Events, until the server stops."}, **problems(404, 422)},
)
async def follow_conversation(
    conversation: TheConversation,
    engine: CurrentEngine,
    caller: CurrentCaller,
    host: CurrentHost,
    from_header: _LastEventId = None,
    from_query: _LastEventIdOfQuery = None,
) -> Response:
    """Follow the updates of a conversation.

    First comes a `snapshot`, or, after the id of an update, everything since then. Updates that are stored have an id.
    The event `end` is the last one, where it can still be sent; its `data` has the reason.
    """
    last_event_id = from_header or from_query or None  # a browser that reconnects repeats the query of the first time
    return await update_stream(engine, conversation, last_event_id, host.limits, caller.shown, caller.seen)


@router.get(
    "/events",
    operation_id="followConversations",
    status_code=200,
    response_class=EventStream,
    responses={200: {"model": _TreeEvents, "description": "Events, until the server stops."}, **problems(422)},
)
async def follow_conversations(
    engine: CurrentEngine, caller: CurrentCaller, host: CurrentHost, owner: str | None = None
) -> Response:
    """Follow the updates of all conversations of an owner, or of all that the caller may see."""
    return tree_stream(engine, caller.chosen_owner(owner), host.limits, caller.shown)
