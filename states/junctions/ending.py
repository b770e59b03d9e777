"""END_TURN and GIVE_UP: the outcome of a turn, what of it is delivered to the user, and how it is left.

A handler that ends a turn first calls `StepBuilder.conclude`; the step that leaves the turn then says what was
delivered.
"""

from __future__ import annotations

from ..context import Context
from ..effects import NotifyParent, SummarizeTurn
from ..events import Event
from ..guards.claims import lacks_answer
from ..replies.delivery_rules import left_owed, outstanding, spoken_and_delivered
from ..replies.nudges import after_empty
from ..state import State
from ..states import Failed, Summarizing
from ..step_builder import StepBuilder
from ..values.messages import Heard, Made
from ..values.revision import ANSWERS_OR_SAYS_WHY, KEEPS_RELAYS, NAMES_PROFILES
from ..values.turn import TurnEnded
from .asking import conclude_with, limit_sentence, name_limit
from .beginning import begin_turn


def summarize(step: StepBuilder[State], event: Event, context: Context) -> Summarizing:
    """What is due to the user is delivered, and a summary for display is written before the turn is left."""
    deliver(step, context)
    effect_id = step.next_id()
    step.add_effect(SummarizeTurn(effect_id=effect_id))
    return step.within_turn(Summarizing, effect_id=effect_id, ending=step.ending)


def end_turn(step: StepBuilder[State], event: Event, context: Context) -> None:
    """What is due to the user is delivered, and the turn is over."""
    deliver(step, context)
    leave_turn(step, context)


def end_empty(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The model said nothing. The turn ends with the policy's sentence for that, or for the limit because of which the
    model is not asked again, unless it is empty or the user receives something else: speech, or a message that is
    passed on."""
    sentence = context.policy.texts.ending
    if after_empty(step.turn, context) is not None:
        name_limit(step, event, context)
        sentence = limit_sentence(context) if context.revision >= ANSWERS_OR_SAYS_WHY else sentence
    receives = step.turn.deliveries or outstanding(step.turn, None, context)
    conclude_with(step, "" if receives else sentence)


def end_complete(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is done. What is displayed is the model's text, or else the summary in its claim."""
    if lacks_answer(step.turn, context):
        name_limit(step, event, context)
    step.conclude("completed", step.turn.final or step.turn.claim)


def reply_with_error(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn ends with a reply that says why there is no other."""
    failure = step.failure
    assert failure is not None, "a handler that gives up has called `fail`"
    texts = context.policy.texts
    reply = f"{texts.error} {failure.sentence}".strip()
    if not reply and context.revision >= ANSWERS_OR_SAYS_WHY:
        reply = texts.ending.strip()
    if reply or context.revision < ANSWERS_OR_SAYS_WHY:
        step.persist(Made(text=reply))
        step.conclude("failed", Made(text=reply), failure=failure)
    else:
        step.conclude("failed", failure=failure)


def rest_failed(step: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The turn failed and nothing goes on by itself. Silent messages enter the transcript. In logs that began before
    revision 6 others wait for a retry or for the next message, and the state holds what was to be passed on."""
    failure = step.failure
    assert failure is not None, "a handler that gives up has called `fail`"
    fail_turn(step, event, context)
    step.enter_transcript(waiting for waiting in step.inbox if waiting.silent)
    return Failed(
        kind=failure.kind,
        sentence=failure.sentence,
        turn=step.turn.number,
        tried_again=step.turn.tries_again,
        relay=() if context.revision >= KEEPS_RELAYS else step.turn.relay,
        inbox=step.inbox,
        book=step.book,
    )


def fail_and_go_on(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn failed and is over, and the messages that waited begin the next one, as they would a moment later."""
    fail_turn(step, event, context)
    begin_turn(step, event.at, context)


def fail_turn(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn failed and is over."""
    step.conclude("failed", failure=step.failure)
    leave_turn(step, context)


def leave_turn(step: StepBuilder[State], context: Context) -> None:
    """The turn is over: record its outcome, in the log of a sub-agent also for its parent."""
    ending = step.ending
    assert ending is not None, "a handler that ends a turn has called `conclude`"
    turn, deliveries = step.turn, step.turn.deliveries
    step.owed = left_owed(step.owed, turn, ending.status)
    step.ended = ending.replace(
        usage=turn.usage,
        deliveries=deliveries,
        user_response=spoken_and_delivered(turn),
        silent=not deliveries,
        profile=turn.profile if context.revision >= NAMES_PROFILES else "",
    )
    if context.role == "sub_agent":
        notify_parent(step, ending)


def notify_parent(step: StepBuilder[State], ending: TurnEnded) -> None:
    """The last text of a sub-agent is its result. Without such a text it failed, and a sentence of the policy may say
    why."""
    said, status = ending.final_content, ending.status
    if status in ("completed", "incomplete"):
        said = step.turn.final or step.turn.claim or said
        status = status if isinstance(said, Heard) else "failed"
    step.add_effect(NotifyParent(effect_id=step.next_id(), status=status, said=said))


def deliver(step: StepBuilder[State], context: Context) -> None:
    """Deliver what the turn has not delivered yet."""
    ending = step.ending
    assert ending is not None, "a handler that ends a turn has called `conclude`"
    failed = ending.status == "failed"
    for said, relayed in outstanding(step.turn, ending.final_content, context, failed=failed):
        step.deliver(said, relayed=relayed)
