"""Updates as they happen, as Server-Sent Events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from ..dependencies import CurrentCaller, CurrentEngine, CurrentHost, TheConversation
from ..problems import problems
from ..schemas.updates import TreeEvents, UpdateEvents
from ..streams.sse import EventStream, tree_stream, update_stream
from .paths import CONVERSATION

router = APIRouter(tags=["updates"])

LastEventId = Annotated[
    str | None,
    Header(alias="last-event-id", description="The id of the last event that was received: what follows it is sent."),
]
LastEventIdOfQuery = Annotated[
    str | None,
    Query(alias="last_event_id", description="The same, for clients that cannot send the header, which wins."),
]


@router.get(
    f"{CONVERSATION}/events",
    operation_id="followConversation",
    status_code=200,
    response_class=EventStream,
    responses={200: {"model": UpdateEvents, "description": "Events, until the server stops."}, **problems(404, 422)},
)
async def follow_conversation(
    conversation: TheConversation,
    engine: CurrentEngine,
    caller: CurrentCaller,
    host: CurrentHost,
    from_header: LastEventId = None,
    from_query: LastEventIdOfQuery = None,
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
    responses={200: {"model": TreeEvents, "description": "Events, until the server stops."}, **problems(422)},
)
async def follow_conversations(
    engine: CurrentEngine, caller: CurrentCaller, host: CurrentHost, owner: str | None = None
) -> Response:
    """Follow the updates of all conversations of an owner, or of all that the caller may see."""
    return tree_stream(engine, caller.chosen_owner(owner), host.limits, caller.shown)
