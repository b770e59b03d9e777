"""Updates as they happen, over HTTP: the streams of one conversation and of all conversations of an owner, and their
events.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union, get_args

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field, GetJsonSchemaHandler, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ...engine.json_forms import DescribedBy
from ...engine.updates import AnyTreeUpdate, TreeSnapshotUpdate, Update
from .dependencies import CONVERSATION, CurrentCaller, CurrentEngine, CurrentHost, TheConversation
from .problems import problems
from .schemas import Answer, EventsOf, named
from .sse import EndReason, EventStream, tree_stream, update_stream


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

router = APIRouter(tags=["updates"])

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
