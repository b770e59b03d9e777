"""Requests: what a client asks of a conversation. Each returns once it is stored, without waiting for the turn."""

from __future__ import annotations

import uuid

from fastapi import APIRouter

from ..dependencies import TheConversation
from ..problems import problems
from ..schemas.requests import NewMessage, SentMessage
from .showing import turn_json

router = APIRouter(tags=["requests"], prefix="/conversations/{conversation_id:conversation_id}")


@router.post("/messages", status_code=202, operation_id="sendMessage", responses=problems(404, 409, 422))
async def send_message(body: NewMessage, conversation: TheConversation) -> SentMessage:
    """Send a message. The updates show what becomes of it."""
    message_id = str(uuid.uuid4()) if body.message_id is None else body.message_id
    turn = await conversation.send(
        body.text, images=body.images, message_id=message_id, when_busy=body.when_busy, wait=False
    )
    return SentMessage(message_id=message_id, turn=turn_json(turn))
