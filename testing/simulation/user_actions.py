"""What people do to a conversation, in good faith and in bad.

`MENU` says what anybody may do at any time, and how often; `ATTENDING` what is done about a state that waits for a
person.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ...states.events import (
    ANSWERS,
    REQUESTS,
    AgentMessage,
    Answer,
    CloseRequested,
    Request,
    Resolution,
    UserCancel,
    UserQuestionResponse,
)
from ...states.policy.policy import WhenBusy
from ...states.states import AwaitingApproval, AwaitingUserResponse, Busy, InDoubt, State
from ...states.values.acts import Audience
from ...states.values.questions import UserQuestion
from .answers import answer
from .generated_values import CannotBeMade, made_up
from .random_source import RandomSource
from .rules import rules

if TYPE_CHECKING:
    from ...engine.conversation import Conversation
    from .engine_host import EngineHost
    from .simulated_user import SimulatedUser

Act: TypeAlias = "Callable[[SimulatedUser, Conversation], Awaitable[None]]"
"""Something that a person does with a handle on the conversation."""


def waits_for_person(state: State) -> bool:
    """Whether only a person, or a deadline, moves this state on."""
    return isinstance(state, Busy) and not state.works


# --- saying something


async def say(person: SimulatedUser, handle: Conversation) -> None:
    """Something new."""
    message_id = str(person.new_request()["event_id"])
    person.messages.append(message_id)
    await _send(person, handle, message_id, f"{message_id} says hello")


async def say_again(person: SimulatedUser, handle: Conversation) -> None:
    """The same again under its id, or something else under it."""
    if person.messages:
        message_id = person.dice.pick(person.messages)
        await _send(person, handle, message_id, f"{message_id} says {person.dice.pick(('hello', 'hello', 'more'))}")


async def _send(person: SimulatedUser, handle: Conversation, message_id: str, text: str) -> None:
    when_busy: WhenBusy | None = person.dice.pick((None, None, "refuse", "queue", "steer"))
    wait = person.dice.chance(0.7)
    sending = handle.send(text, message_id=message_id, when_busy=when_busy, wait=wait)
    await person.call(f"send {message_id}" if wait else f"send {message_id} and go on", sending)


async def write(person: SimulatedUser, handle: Conversation) -> None:
    """As another agent: to this one, or for its user, in silence or not."""
    audience: Audience = person.dice.pick(("agent", "user"))
    text, silent = "The table is booked.", person.dice.chance(0.4)
    await person.dispatch(
        handle, AgentMessage(origin="agent-1", text=text, audience=audience, silent=silent, **person.new_request())
    )


async def withdraw(person: SimulatedUser, handle: Conversation) -> None:
    """A message that may or may not wait."""
    message_id = person.dice.pick([*person.messages, "nobody's"])
    await person.call(f"withdraw {message_id}", handle.withdraw(message_id))


# --- answering


async def attend(person: SimulatedUser, handle: Conversation) -> None:
    """What the conversation waits for, if it waits for a person."""
    state = handle.state
    if waits_for_person(state):
        await ATTENDING.get(type(state), give_up)(person, handle)


async def answer_question(person: SimulatedUser, handle: Conversation) -> None:
    """All that is asked, with labels or in own words; sometimes something else first."""
    if person.dice.chance(0.2):
        await answer_wrongly(person, handle)
    state = handle.state
    if isinstance(state, AwaitingUserResponse):
        answers = {question.question: _choice(question, person.dice) for question in state.questions}
        await person.call("answer", handle.answer(answers))


def _choice(question: UserQuestion, dice: RandomSource) -> str | tuple[str, ...]:
    labels = tuple(option.label for option in question.options)
    return labels if question.multi_select and dice.chance(0.5) else dice.pick((labels[0], "in own words"))


async def answer_wrongly(person: SimulatedUser, handle: Conversation) -> None:
    """Too little, too much, or what was not asked."""
    answers: dict[str, Any] = person.dice.pick(({}, {"When?": ""}, {"When?": ["6:30 PM", "8:15 PM"]}, {"Who?": "me"}))
    await person.call("answer wrongly", handle.answer(answers))


async def answer_late(person: SimulatedUser, handle: Conversation) -> None:
    """An answer to a question that is over."""
    late = UserQuestionResponse(answers={"When?": "6:30 PM"}, call_id="call_1_0", **person.new_request())
    await person.dispatch(handle, late)


async def approve(person: SimulatedUser, handle: Conversation) -> None:
    """The call that waits, or not; sometimes with other arguments."""
    state = handle.state
    if isinstance(state, AwaitingApproval):
        allowed = person.dice.chance(0.7)
        arguments = person.dice.pick((None, None, {"path": "b"}))
        await person.call("approve", handle.approve(state.call.call_id, allowed, "as you like", arguments))


async def approve_late(person: SimulatedUser, handle: Conversation) -> None:
    """A call that does not wait."""
    await person.call("approve late", handle.approve(person.dice.pick(("call_1_0", "call_2_1")), True))


async def give_up(person: SimulatedUser, handle: Conversation) -> None:
    """Whatever it waits for, it is not wanted any more."""
    await person.call("cancel", handle.cancel())


async def settle_doubt(person: SimulatedUser, handle: Conversation) -> None:
    """What became of a call that a crash interrupted, as far as anybody knows."""
    state = handle.state
    if isinstance(state, InDoubt):
        said: Resolution = person.dice.pick(("ran", "did_not_run", "again"))
        await person.call(f"resolve {said}", handle.resolve(state.call.call_id, said))


# --- stopping, and starting again


async def decline(person: SimulatedUser, handle: Conversation) -> None:
    """Not to answer."""
    await person.call("decline", handle.decline())


async def cancel_late(person: SimulatedUser, handle: Conversation) -> None:
    """A turn or a question that may be over."""
    turn = person.dice.number(0, handle.state.book.turn)
    call_id = person.dice.pick((None, "call_1_0"))
    await person.dispatch(handle, UserCancel(turn=turn, call_id=call_id, **person.new_request()))


async def retry(person: SimulatedUser, handle: Conversation) -> None:
    """What failed."""
    await person.call("retry", handle.retry())


async def condense(person: SimulatedUser, handle: Conversation) -> None:
    """The history, by hand."""
    await person.call("compact", handle.compact())


async def change_rules(person: SimulatedUser, handle: Conversation) -> None:
    """Other rules from here on."""
    await person.call("set_policy", handle.set_policy(rules(person.dice)))


async def close(person: SimulatedUser, handle: Conversation) -> None:
    """For good."""
    await person.call("close", handle.close())


# --- what no honest person does


async def repeat(person: SimulatedUser, handle: Conversation) -> None:
    """An earlier request, delivered once more, as it was or with other content under its id."""
    earlier = [asked.event for asked in person.house.notebook.asked if isinstance(asked.event, Request)]
    if not earlier:
        return
    event = person.dice.pick(earlier)
    if person.dice.chance(0.3):
        other: dict[str, object] = {"event_id": event.event_id, "at": event.at}
        event = person.dice.pick(earlier).model_copy(update=other)
    if not isinstance(event, CloseRequested):
        await person.dispatch(handle, event)


async def want_anything(person: SimulatedUser, handle: Conversation) -> None:
    """Any request, whatever the state; its content is made up."""
    kind = person.dice.pick([kind for kind in REQUESTS if kind is not CloseRequested])
    given = person.new_request() | ({"policy": rules(person.dice)} if "policy" in kind.model_fields else {})
    try:
        await person.dispatch(handle, made_up(kind, person.dice, **given))
    except CannotBeMade as error:
        person.house.notebook.story.blame(f"people do not know how to want it: {error}")


async def forge(person: SimulatedUser, handle: Conversation) -> None:
    """An answer that no performer gave, straight into the mailbox or through the front door."""
    forged = _forged(person.dice, person.house)
    if person.dice.chance(0.3):
        await person.dispatch(handle, forged)
    else:
        person.house.notebook.story.tell(person.name, f"forges {forged.type}:{forged.effect_id}")
        person.house.post(forged)


def _forged(dice: RandomSource, house: EngineHost) -> Answer:
    """An answer once more, one to what is awaited, or one to nothing or to what it does not answer."""
    given = [row.event for row in house.rows if isinstance(row.event, Answer)]
    awaited = house.stored.awaited()
    match dice.number(0, 3):
        case 0 if given:
            return dice.pick(given)
        case 1 if awaited:
            effect_id = dice.pick(sorted(awaited))
            kinds = awaited[effect_id]
        case _:
            effect_id = dice.number(-1, house.stored.book.next_effect + 1)
            kinds = tuple(kind for kind in ANSWERS if kind not in awaited.get(effect_id, ()))
    return answer(dice.pick(kinds), dice, effect_id, house.clock.now())


# --- looking


async def watch(person: SimulatedUser, handle: Conversation) -> None:
    """Look on, and go on with other things."""
    person.watch(handle)


MENU: dict[Act, float] = {
    say: 8,
    say_again: 1,
    withdraw: 1,
    answer_wrongly: 0.5,
    answer_late: 0.5,
    approve_late: 0.5,
    give_up: 2,
    decline: 0.5,
    cancel_late: 1,
    retry: 0.5,
    change_rules: 1,
    condense: 0.5,
    write: 1,
    close: 0.15,
    repeat: 1,
    want_anything: 1,
    forge: 2,
    watch: 0.3,
}
"""What people do, and how often."""

ATTENDING: dict[type[State], Act] = {
    AwaitingUserResponse: answer_question,
    AwaitingApproval: approve,
    InDoubt: settle_doubt,
}
"""What people do about a state that waits for them; about any other they give up."""
