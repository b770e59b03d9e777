"""Updates as they happen, as Server-Sent Events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from ..dependencies import CurrentCaller, CurrentEngine, CurrentHost, TheConversation
from ..problems import problems
from ..schemas.updates import TreeEvents, UpdateEvents
from ..streams.sse import last_event_id, tree_stream, update_stream
from .paths import CONVERSATION

router = APIRouter(tags=["updates"])

LastEventId = Annotated[
    str | None, Header(description="The id of the last event that was received: what follows it is sent.")
]
LastEventIdOfQuery = Annotated[
    str | None,
    Query(alias="last_event_id", description="The same, for clients that cannot send the header, which wins."),
]


class EventStream(Response):
    """How OpenAPI describes the answer."""

    media_type = "text/event-stream"


@router.get(
    f"{CONVERSATION}/events",
    operation_id="followConversation",
    response_class=EventStream,
    responses={200: {"model": UpdateEvents, "description": "Events, until the server stops."}, **problems(404, 422)},
)
async def follow_conversation(
    request: Request,
    conversation: TheConversation,
    engine: CurrentEngine,
    host: CurrentHost,
    last_event_id_header: Annotated[LastEventId, Header(alias="last-event-id")] = None,
    last_event_id_query: LastEventIdOfQuery = None,
) -> Response:
    """Follow the updates of a conversation.

    First comes a `snapshot`, or, after the id of an update, everything since then. Updates that are stored have an id.
    The event `end` is the last one, where it can still be sent; its `data` has the reason.
    """
    return await update_stream(engine, conversation, last_event_id(request), host.limits)


@router.get(
    "/events",
    operation_id="followConversations",
    response_class=EventStream,
    responses={200: {"model": TreeEvents, "description": "Events, until the server stops."}, **problems(422)},
)
async def follow_conversations(
    engine: CurrentEngine, caller: CurrentCaller, host: CurrentHost, owner: str | None = None
) -> Response:
    """Follow the updates of all conversations of an owner, or of all that the caller may see."""
    return tree_stream(engine, caller.chosen_owner(owner), host.limits)
