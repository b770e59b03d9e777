"""What users do to a conversation, in good faith and in bad.

`ACTIONS` says what users do at any time, and how often; `RESPONSES` what they do about a state that waits for a person.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ....states.errors import EngineClosed
from ....states.events import (
    ANSWERS,
    REQUESTS,
    Answer,
    CloseRequested,
    Opened,
    Request,
    Resolution,
    ScheduleChanged,
)
from ....states.policy import WhenBusy
from ....states.states import AwaitingApproval, AwaitingSubAgents, AwaitingUserResponse, Busy, InDoubt, State
from ...generation.answers import answer as generated_answer
from ...generation.events import call_of
from ...generation.from_types import CannotBeGenerated
from ...generation.questions import any_answer_to
from ...generation.requests import request
from .simulated_user import Handle, SimulatedUser

if TYPE_CHECKING:
    from ....engine.updates import Update

Action: TypeAlias = Callable[[SimulatedUser, Handle], Awaitable[None]]
"""Something that a user does with a handle on the conversation."""


def waits_for_person(state: State) -> bool:
    """Whether only a person, or a deadline, moves this state on, or what a sub-agent asks. `Pure.`"""
    return isinstance(state, Busy) and (not state.works or state.open_question is not None)


# --- sending


async def send(user: SimulatedUser, handle: Handle) -> None:
    """Send a new message."""
    message_id = user.new_id()
    user.messages.append(message_id)
    await _send(user, handle, message_id, f"{message_id} says hello")


async def send_again(user: SimulatedUser, handle: Handle) -> None:
    """Send a message once more under its id, sometimes with another text."""
    if user.messages:
        message_id = user.chance.pick(user.messages)
        text = user.chance.pick(("hello", "hello", "more"))
        await _send(user, handle, message_id, f"{message_id} says {text}")


async def _send(user: SimulatedUser, handle: Handle, message_id: str, text: str) -> None:
    when_busy: WhenBusy | None = user.vocabulary.when_busy(user.chance)
    if user.chance.probably(0.2):
        streaming = _collect(handle.conversation.stream(text, message_id=message_id, when_busy=when_busy))
        await user.call(handle, f"stream {message_id}", streaming, request_id=message_id)
        return
    wait = user.chance.probably(0.7)
    sending = handle.conversation.send(text, message_id=message_id, when_busy=when_busy, wait=wait)
    what = f"send {message_id}" if wait else f"send {message_id} and go on"
    await user.call(handle, what, sending, request_id=message_id)


async def _collect(updates: AsyncIterator[Update]) -> list[Update]:
    return [update async for update in updates]


async def withdraw(user: SimulatedUser, handle: Handle) -> None:
    """Withdraw a message that may or may not wait."""
    message_id = user.chance.pick([*user.messages, "unknown"])
    await user.ask(handle, f"withdraw {message_id}", lambda it, id_: it.withdraw(message_id, request_id=id_))


# --- responding


async def respond(user: SimulatedUser, handle: Handle) -> None:
    """Do what the conversation waits for, if it waits for a person."""
    state = handle.conversation.state
    if waits_for_person(state):
        await RESPONSES.get(type(state), cancel)(user, handle)


async def answer_question(user: SimulatedUser, handle: Handle) -> None:
    """Answer what is asked; sometimes give a wrong answer first."""
    if user.chance.probably(0.2):
        await answer_wrongly(user, handle)
    asked = handle.conversation.state.open_question
    if asked is not None:
        answers = {question.question: any_answer_to(user.chance, question) for question in asked.questions}
        call_id = user.chance.pick((None, asked.call_id))
        await user.ask(handle, "answer", lambda it, id_: it.answer(answers, call_id=call_id, request_id=id_))


async def answer_wrongly(user: SimulatedUser, handle: Handle) -> None:
    """Answer too little, too much, or what was not asked."""
    wrong: tuple[dict[str, Any], ...] = ({}, {"When?": ""}, {"When?": ["6:30 PM", "8:15 PM"]}, {"Who?": "me"})
    answers = user.chance.pick(wrong)
    await user.ask(handle, "answer wrongly", lambda it, id_: it.answer(answers, request_id=id_))


async def approve(user: SimulatedUser, handle: Handle) -> None:
    """Allow the call that waits, or do not; sometimes with other arguments."""
    state = handle.conversation.state
    if isinstance(state, AwaitingApproval):
        call_id, allowed = state.call.call_id, user.chance.probably(0.7)
        arguments = user.chance.pick((None, None, {"path": "b"}))
        await user.ask(
            handle, "approve", lambda it, id_: it.approve(call_id, allowed, "as you like", arguments, request_id=id_)
        )


async def resolve(user: SimulatedUser, handle: Handle) -> None:
    """Say what became of a call that a crash interrupted."""
    state = handle.conversation.state
    if isinstance(state, InDoubt):
        verdicts: tuple[Resolution, ...] = ("ran", "did_not_run", "again")
        call_id, verdict = state.call.call_id, user.chance.pick(verdicts)
        await user.ask(handle, f"resolve {verdict}", lambda it, id_: it.resolve(call_id, verdict, request_id=id_))


async def decline(user: SimulatedUser, handle: Handle) -> None:
    """Decline a question, whether or not one is asked."""
    asked = user.stored.open_question
    call_id = user.chance.pick((None, "call_0_0" if asked is None else asked.call_id))
    await user.ask(handle, "decline", lambda it, id_: it.decline(call_id, request_id=id_))


async def cancel(user: SimulatedUser, handle: Handle) -> None:
    """Cancel the turn."""
    turn = user.chance.pick((None, user.stored.book.turn))
    await user.ask(handle, "cancel", lambda it, id_: it.cancel(turn, request_id=id_))


# --- changing the conversation


async def retry(user: SimulatedUser, handle: Handle) -> None:
    """Try again what failed."""
    await user.ask(handle, "retry", lambda it, id_: it.retry(request_id=id_))


async def compact(user: SimulatedUser, handle: Handle) -> None:
    """Have the history condensed."""
    await user.ask(handle, "compact", lambda it, id_: it.compact(request_id=id_))


async def change_policy(user: SimulatedUser, handle: Handle) -> None:
    """Change the rules."""
    policy = user.vocabulary.policy(user.chance)
    await user.ask(handle, "set_policy", lambda it, id_: it.set_policy(policy, request_id=id_))


async def change_title(user: SimulatedUser, handle: Handle) -> None:
    """Change the title."""
    title = user.chance.pick(("Dinner", "Lunch", ""))
    await user.ask(handle, "set_title", lambda it, id_: it.set_title(title, request_id=id_))


async def close(user: SimulatedUser, handle: Handle) -> None:
    """Close the conversation for good."""
    await user.ask(handle, "close", lambda it, id_: it.close(request_id=id_))


async def ask_again(user: SimulatedUser, handle: Handle) -> None:
    """Make an earlier request once more under its id, also one of another user."""
    if user.recorder.asked:
        await user.ask_again(handle, user.chance.pick(user.recorder.asked))


# --- events of one's own making


async def request_anything(user: SimulatedUser, handle: Handle) -> None:
    """Dispatch a generated request of any type, which fits the state or does not."""
    kind = user.chance.pick([kind for kind in REQUESTS if kind not in (CloseRequested, Opened)])
    state = user.stored if user.chance.probably(0.7) else None
    try:
        event: Request = request(user.chance, user.vocabulary, kind, **user.new_request(), state=state)
    except CannotBeGenerated as error:
        user.disk.trace.report_fault(f"a request cannot be generated: {error}")
        return
    if isinstance(event, ScheduleChanged):  # a conversation that goes on waking up would never come to rest
        event = event.model_copy(update={"schedule": None, "next_wake": None})
    await user.dispatch(handle, event)


async def repeat(user: SimulatedUser, handle: Handle) -> None:
    """Dispatch an earlier request once more, as it was or with other content under its id."""
    stored = [row.event for row in user.disk.steps_of(user.conversation_id)]
    earlier = [*user.recorder.requests, *(event for event in stored if isinstance(event, Request))]
    requests = [event for event in earlier if not isinstance(event, CloseRequested | Opened)]
    if requests:
        event: Any = user.chance.pick(requests)
        if user.chance.probably(0.3):
            event = user.chance.pick(requests).model_copy(update={"event_id": event.event_id, "at": event.at})
        await user.dispatch(handle, event)


async def forge(user: SimulatedUser, handle: Handle) -> None:
    """Hand in an answer that no performer gave, as a performer's or as a request."""
    forged = _forged(user)
    if user.chance.probably(0.3):
        await user.dispatch(handle, forged)
        return
    user.recorder.trace.record(user.name, f"forges {forged.type}:{forged.effect_id}")
    try:
        user.host.answer(user.conversation_id, forged)
    except EngineClosed:
        return  # there is no engine to take it


def _forged(user: SimulatedUser) -> Answer:
    """An answer once more, one to what is awaited, or one to nothing or of a type that does not fit."""
    chance, state = user.chance, user.stored
    given = [row.event for row in user.disk.steps_of(user.conversation_id) if isinstance(row.event, Answer)]
    awaited = state.awaited()
    match chance.below(4):
        case 0 if given:
            return chance.pick(given)
        case 1 if awaited:
            effect_id = chance.pick(sorted(awaited))
            kinds = awaited[effect_id]
        case _:
            effect_id = chance.number(-1, state.book.next_effect + 1)
            kinds = tuple(kind for kind in ANSWERS if kind not in awaited.get(effect_id, ()))
    at = user.new_request()["at"]
    return generated_answer(chance, user.vocabulary, chance.pick(kinds), effect_id, at, call_of(state, effect_id))


# --- looking


async def wait(user: SimulatedUser, handle: Handle) -> None:
    """Wait for the turn under way."""
    await user.call(handle, "wait", handle.conversation.wait())


async def watch(user: SimulatedUser, handle: Handle) -> None:
    """Watch from now on, or from where the last watch ended, and go on with other things."""
    seen = [update.id for record in user.watches for update in record.updates if update.id is not None]
    user.watch(handle, seen[-1] if seen and user.chance.probably(0.8) else None)


ACTIONS: dict[Action, int] = {
    send: 16,
    send_again: 2,
    withdraw: 2,
    answer_wrongly: 1,
    cancel: 4,
    decline: 1,
    retry: 1,
    change_policy: 2,
    change_title: 1,
    ask_again: 8,
    compact: 1,
    request_anything: 8,
    repeat: 2,
    forge: 4,
    watch: 1,
    wait: 1,
}
"""What users do at any time, with its weight; closing is apart, since nothing happens after it."""

CLOSING = 0.005
"""How often a user closes the conversation for good."""

RESPONSES: dict[type[State], Action] = {
    AwaitingUserResponse: answer_question,
    AwaitingSubAgents: answer_question,
    AwaitingApproval: approve,
    InDoubt: resolve,
}
"""What users do about a state that waits for them; they cancel any other."""
