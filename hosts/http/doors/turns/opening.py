"""The conversation that a client names by an id of its own, created when it is first named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....engine.conversation import Conversation
from .....engine.engine import Engine
from .....engine.requests import make
from .....states.errors import Refused, UnknownConversation
from .....states.events import UserMessage
from ...permissions import Caller
from .requested_turn import Said


async def opened(
    engine: Engine,
    caller: Caller,
    conversation_id: str,
    said: Said,
    message_id: str,
    *,
    messages: list[dict[str, Any]],
    model: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Conversation:
    """Return the caller's conversation with this id; if there is none, a new one that begins with these messages, for
    what is `said` next under `message_id`. Raises what `Caller.create` raises, `InvalidInput` for a message that no
    conversation takes, before one is created for it, and `UnknownConversation` for the id of somebody else."""
    try:
        return await caller.open(engine, conversation_id)
    except UnknownConversation:
        make(UserMessage, event_id=message_id, at=engine.now(), text=said.text, images=said.images, when_busy=None)
    try:
        return await caller.create(
            engine,
            conversation_id=caller.new_id(conversation_id),
            model=model,
            messages=messages,
            metadata=metadata,
        )
    except Refused as refused:
        if refused.code != "event_id_reused":
            raise
    return await caller.open(engine, conversation_id)  # somebody has created it meanwhile, with other arguments
