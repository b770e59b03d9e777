"""The endpoints of the OpenAI API that clients of chat models use."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from .....engine.conversation import Conversation
from .....engine.engine import Engine
from .....engine.requests import LONGEST_ID
from ...dependencies import CurrentCaller, CurrentEngine, CurrentHost
from ...permissions import Caller
from ...security.limits import HttpLimits
from ...streams.sse import EventStream
from ..turns.choosing import request_turn, stored
from ..turns.requested_turn import ActTurn, RequestedTurn
from .completion import Asked, chunks_of, completion_of
from .conversations import apply_settings, durable, stateless
from .disconnection import unless_disconnected
from .messages import ReadMessages, read_messages
from .refusals import OpenAiRefusal, OpenAiRoute, refusals
from .request_body import CompletionBody, check_supported
from .response_body import Completion, ModelEntry, ModelList

CLIENT_CLOSED = 499
"""The status that logs show for a request whose client has gone; nobody receives it."""

router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAiRoute)

IdempotencyKey = Annotated[
    Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None,
    Header(description="The same as `metadata.message_id`: a durable completion is carried out once under it."),
]

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion; with `stream`, chunks of it as Server-Sent Events.",
        "content": {"text/event-stream": {}},
    }
}


@router.post(
    "/chat/completions",
    operation_id="createChatCompletion",
    response_model=Completion,
    responses={**_STREAM, **refusals(400, 401, 403, 404, 408, 409, 413, 415, 429, 502, 503)},
)
async def create_chat_completion(
    body: CompletionBody,
    request: Request,
    engine: CurrentEngine,
    caller: CurrentCaller,
    host: CurrentHost,
    idempotency_key: IdempotencyKey = None,
) -> Completion | Response:
    """Answer the last message.

    With `metadata.conversation_id` the conversation is kept: it is created from the messages before the last one, and
    later only the last message is read. Without it the conversation is gone when this request ends.
    """
    check_supported(body)
    _check_model(engine, body.model)
    read = read_messages(body.messages)
    async with AsyncExitStack() as stack:
        message_id = (body.metadata.message_id if body.metadata else None) or idempotency_key
        conversation, is_durable = await _conversation(engine, caller, body, read, message_id, stack)
        await apply_settings(caller, conversation, body.settings)
        requested = await _request(caller, conversation, body, read, message_id if is_durable else None)
        shown_id = caller.shown_id(conversation.id) if is_durable else None
        asked = Asked(requested, body.model, int(engine.now().timestamp()), shown_id)
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            kept = stack.pop_all()
            return _ClosingStream(chunks_of(asked, usage=usage, at_end=kept.aclose), host.limits, kept)
        try:
            return await unless_disconnected(request, completion_of(asked))
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)


@router.get("/models", operation_id="listChatModels", responses=refusals(401, 403, 429, 503))
async def list_chat_models(engine: CurrentEngine) -> ModelList:
    """List the models that the engine was opened with."""
    return ModelList(data=[ModelEntry(id=name) for name in engine.model_names])


@router.get("/models/{model:path}", operation_id="getChatModel", responses=refusals(401, 403, 404, 429, 503))
async def get_chat_model(model: str, engine: CurrentEngine) -> ModelEntry:
    """Show one of them."""
    _check_model(engine, model)
    return ModelEntry(id=model)


def _check_model(engine: Engine, model: str) -> None:
    if model not in engine.model_names:
        names = ", ".join(engine.model_names)
        raise OpenAiRefusal("model_not_found", f"There is no such model; there are: {names}.", "model", status=404)


async def _conversation(
    engine: Engine,
    caller: Caller,
    body: CompletionBody,
    read: ReadMessages,
    message_id: str | None,
    stack: AsyncExitStack,
) -> tuple[Conversation, bool]:
    """Return the conversation, and whether it is kept."""
    conversation_id = body.metadata.conversation_id if body.metadata is not None else None
    if conversation_id is not None:
        return await durable(engine, caller, conversation_id, body, read, message_id or str(uuid.uuid4())), True
    if body.turnwise is not None:
        sentence = "Only a conversation that is kept, by metadata.conversation_id, can wait for a person."
        raise OpenAiRefusal("unsupported_parameter", sentence, "turnwise")
    return await stateless(engine, caller, body, read, stack), False


async def _request(
    caller: Caller, conversation: Conversation, body: CompletionBody, read: ReadMessages, message_id: str | None
) -> RequestedTurn:
    if body.turnwise is None:
        return await request_turn(caller, conversation, read.said, message_id, read.shown)
    return await stored(ActTurn(caller, conversation, message_id or str(uuid.uuid4()), body.turnwise.act))


class _ClosingStream(EventStream):
    """A stream after which a stack is closed, also if the client disconnects before the stream begins."""

    def __init__(self, events: AsyncIterator[bytes], limits: HttpLimits, stack: AsyncExitStack) -> None:
        super().__init__(events, limits)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)
