"""What was said in a conversation, what its turns were, and what they cost."""

from __future__ import annotations

from contextlib import aclosing

from fastapi import APIRouter

from ....states.values.messages import Usage
from ..dependencies import CurrentCaller, TheConversation
from ..problems import problems
from ..schemas.history import MessagesAnswer, TranscriptAnswer, TurnsAnswer
from .paths import CONVERSATION

router = APIRouter(tags=["history"], prefix=CONVERSATION, responses=problems(404))


@router.get("/transcript", operation_id="getTranscript")
async def get_transcript(conversation: TheConversation, caller: CurrentCaller) -> TranscriptAnswer:
    """Return what was said, oldest first, as a snapshot of the updates has it."""
    async with aclosing(conversation.updates()) as updates:
        snapshot = caller.seen(await anext(updates))
    return TranscriptAnswer(messages=caller.shown(snapshot.data["transcript"]))


@router.get("/messages", operation_id="getMessages")
async def get_messages(conversation: TheConversation, caller: CurrentCaller) -> MessagesAnswer:
    """Return what was said in OpenAI's chat format, with the system prompt. A new conversation can begin with it.

    Messages of the system are left out for a user who may not read them.
    """
    return MessagesAnswer(messages=caller.readable(await conversation.messages()))


@router.get("/turns", operation_id="listTurns")
async def list_turns(conversation: TheConversation) -> TurnsAnswer:
    """List the turns that have ended, oldest first."""
    return TurnsAnswer(turns=[turn.data for turn in await conversation.turns()])


@router.get("/usage", operation_id="getUsage")
async def get_usage(conversation: TheConversation) -> Usage:
    """Return what the conversation has cost so far."""
    return await conversation.usage()
