"""The conversation of a completion: a durable one by the id that the client chose, or one that is gone afterwards."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack, suppress
from typing import Any
from weakref import WeakSet

from .....engine.conversation import Conversation
from .....engine.engine import Engine
from .....states.errors import TurnwiseError
from .....states.policy import DEFAULT_SETTINGS, Profile
from .....states.values.acts import MARK
from ...permissions import Caller
from ..turns.acts import awaited_by
from ..turns.opening import opened
from .messages import ReadMessages
from .refusals import OpenAiRefusal
from .request_body import CompletionBody

_STATELESS = {"completion": "stateless"}
"""The mark by which conversations are found that a process left behind. Nobody can set it from outside."""

_PROCESS = uuid.uuid4().hex
"""Tells the conversations of this process from those of one that has ended."""

_PROFILE = "chat_completions"
"""The name of the profile that holds the parameters of requests, in a conversation that has no profiles."""

_tidied: WeakSet[Engine] = WeakSet()


async def durable(
    engine: Engine, caller: Caller, conversation_id: str, body: CompletionBody, read: ReadMessages, message_id: str
) -> Conversation:
    """Return the conversation with this id, created from the messages before the last one if there is none. Only one
    that exists can wait for a person. Raises `OpenAiRefusal` if it uses another model, `UnknownConversation`, and what
    `Engine.create` raises."""
    if body.turnwise is not None:
        conversation = await caller.open(engine, conversation_id)
    else:
        noted = body.metadata.model_extra if body.metadata is not None else None
        conversation = await opened(
            engine,
            caller,
            conversation_id,
            read.said,
            message_id,
            messages=read.history,
            model=body.model,
            metadata=noted,
        )
    models = {model.name for model in conversation.policy.models}
    if body.model not in models:
        sentence = f"The conversation uses the model {conversation.policy.models[0].name}."
        raise OpenAiRefusal("model_mismatch", sentence, "model")
    return conversation


async def stateless(
    engine: Engine, caller: Caller, body: CompletionBody, read: ReadMessages, stack: AsyncExitStack
) -> Conversation:
    """Return a new conversation that the stack deletes, with whatever runs in it, when it is closed."""
    if engine not in _tidied:
        await delete_abandoned(engine)
    marks = {**_STATELESS, "process": _PROCESS}
    conversation = await caller.create(engine, model=body.model, messages=read.history, marks=marks)
    stack.push_async_callback(_delete, engine, conversation.id)
    return conversation


async def delete_abandoned(engine: Engine) -> None:
    """Delete the stateless conversations that a process left behind when it was killed. One process uses a store, as
    with SQLite; a store that several share keeps what they have under way."""
    _tidied.add(engine)
    for summary in await engine.list(metadata={f"{MARK}{name}": value for name, value in _STATELESS.items()}):
        if summary.metadata.get(f"{MARK}process") != _PROCESS:
            await _delete(engine, summary.id)


async def _delete(engine: Engine, conversation_id: str) -> None:
    """Delete a conversation. If that fails now, the next process does it."""
    with suppress(TurnwiseError):
        await engine.delete(conversation_id)


async def apply_settings(caller: Caller, conversation: Conversation, settings: dict[str, Any]) -> None:
    """Let the model of the conversation be asked with these parameters from the next turn on; a turn that waits for a
    person keeps its own. Raises `Refused` with `busy` during a turn if they differ from those that hold."""
    if not settings or awaited_by(conversation.state) is not None:
        return
    policy = conversation.policy
    profiles = policy.profiles or (Profile(name=_PROFILE, settings=DEFAULT_SETTINGS),)
    changed = tuple(one.replace(settings=one.settings.replace(**settings)) for one in profiles)
    if changed != policy.profiles:
        await caller.set_policy(conversation, policy.replace(profiles=changed))
