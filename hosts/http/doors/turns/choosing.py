"""Decides what a client sends: a new message, the reply to what the turn waits for, or one of these once more."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from .....engine.conversation import Conversation
from .....engine.updates import StateView
from .....states.errors import InvalidInput, RefusalCode, Refused
from ...permissions import Caller
from .acts import Act, Awaited, Wanted, awaited_by
from .requested_turn import ActTurn, MessageTurn, RequestedTurn, Said
from .text_replies import act_of


async def request_turn(
    caller: Caller, conversation: Conversation, said: Said, request_id: str | None = None, shown: str | None = None
) -> RequestedTurn:
    """Hand a message of the caller to its conversation, and return the turn that it begins or continues.

    If the turn waits for a person, the text is the reply. `shown` is the assistant's message that the user has seen
    last; a reply that was meant for something else, because it was sent late or twice, is refused. With a `request_id`
    the message is taken once, however often it is sent. Raises what `Conversation.send` and `answer` raise.
    """
    awaited = awaited_by(conversation.state)
    chosen_id = str(uuid.uuid4()) if request_id is None else request_id
    if awaited is not None and request_id is not None:
        earlier = await _earlier(caller, conversation, said, request_id)
        if earlier is not None:
            return await stored(earlier)
    if awaited is None:
        return await _sent(caller, conversation, said, chosen_id)
    _check_meant(awaited, shown)
    return await stored(ActTurn(caller, conversation, chosen_id, _reply(said, awaited)))


async def stored(requested: RequestedTurn) -> RequestedTurn:
    """Hand a request over, and return it."""
    await requested.store()
    return requested


async def _sent(caller: Caller, conversation: Conversation, said: Said, request_id: str) -> RequestedTurn:
    """Send a message; or, if its id is that of a reply, hand in that reply again."""
    try:
        return await stored(MessageTurn(conversation, request_id, said))
    except Refused as refused:
        earlier = await _earlier(caller, conversation, said, request_id) if refused.code == "event_id_reused" else None
        if not isinstance(earlier, ActTurn):
            raise
    return await stored(earlier)


async def _earlier(caller: Caller, conversation: Conversation, said: Said, request_id: str) -> RequestedTurn | None:
    """Return what was stored under this id as it is asked for now, None if nothing was. The engine compares the two."""
    earlier = await earlier_request(conversation, request_id)
    if earlier is None:
        return None
    if earlier.awaited is None or earlier.is_message:
        return MessageTurn(conversation, request_id, said)
    return ActTurn(caller, conversation, request_id, _reply(said, earlier.awaited))


@dataclass(frozen=True)
class EarlierRequest:
    """A request that was stored before, and what the conversation waited for then."""

    is_message: bool
    awaited: Awaited | None


async def earlier_request(conversation: Conversation, request_id: str) -> EarlierRequest | None:
    """Return the request that was stored under this id, None if none was. Raises `StoreError`."""
    seq = await conversation.step_of(request_id)
    if seq is None or seq == 1:  # the first step is that of the creation, before which nothing was waited for
        return None
    before, step = await conversation.steps(seq - 2, 2)
    return EarlierRequest(step.event["type"] == "user_message", _awaited_in(before.state))


async def began_waiting(conversation: Conversation) -> int | None:
    """Return the number of the step since which the conversation waits for what it waits for now, None if it waits for
    nobody. Raises `StoreError`."""
    began, now = None, None
    for step in reversed(await conversation.steps()):
        awaited = _awaited_in(step.state)
        if awaited is None or awaited != (now or awaited):
            break
        began, now = step.seq, awaited
    return began


def _awaited_in(state: StateView) -> Awaited | None:
    wanted: dict[str, Wanted] = {"awaiting_approval": "approval", "in_doubt": "resolution"}
    kind = "answers" if state.questions else wanted.get(state.type)
    return None if kind is None or state.call_id is None else Awaited(kind, state.call_id, state.questions)


def _reply(said: Said, awaited: Awaited) -> Act:
    if said.images:
        raise InvalidInput("The conversation waits for a reply, which can have no images.")
    return act_of(said.text, awaited)


def _check_meant(awaited: Awaited, shown: str | None) -> None:
    """Raise `Refused` if the user has last seen something else. What concerns a call must have been seen; whoever
    answers a question may have been told of it in another way."""
    match awaited.wanted:
        case "answers":
            if shown is not None and not any(one.question in shown for one in awaited.questions):
                raise Refused("wrong_state", sentence="Another question waits than the one that was last shown.")
        case "approval" | "resolution":
            if shown is None or f"[{awaited.call_id}]" not in shown:
                code: RefusalCode = "awaiting_approval" if awaited.wanted == "approval" else "in_doubt"
                raise Refused(code, sentence="A reply in plain text must follow the message that asks for it.")
