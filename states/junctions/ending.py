"""END_TURN and GIVE_UP: what a turn came to, what of it reaches the user, and how it is left.

Whatever ends a turn first says how (`StepBuilder.conclude`); here the ends meet, and the step that leaves the turn says
what was delivered.
"""

from __future__ import annotations

from ..context import Context
from ..effects import NotifyParent, SummarizeTurn
from ..events import Event
from ..replies.delivery_rules import outstanding, spoken_and_delivered
from ..state import State
from ..states import Failed, Summarizing
from ..step_builder import StepBuilder
from ..values.messages import Heard, Made
from ..values.turn import TurnEnded
from .asking import conclude_with


def summarize(step: StepBuilder[State], event: Event, context: Context) -> Summarizing:
    """What the user receives is delivered; a summary for display is written before the turn is left."""
    deliver(step, context)
    effect_id = step.next_id()
    step.act(SummarizeTurn(effect_id=effect_id))
    return step.within_turn(Summarizing, effect_id=effect_id, ending=step.ending)


def end_turn(step: StepBuilder[State], event: Event, context: Context) -> None:
    """What the user receives is delivered, and the turn is over."""
    deliver(step, context)
    leave_turn(step, context)


def end_empty(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The model said nothing. So that nobody is left with silence the turn ends with a sentence of the policy, unless
    the rules have none, or the user receives something all the same: speech, or a message that is passed on."""
    receives = step.turn.deliveries or outstanding(step.turn, None, context)
    conclude_with(step, "" if receives else context.policy.texts.ending)


def end_complete(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is done. To be shown is what the model wrote, or else its own summary."""
    step.conclude("completed", step.turn.final or step.turn.claim)


def reply_with_error(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn ends with a reply that says why there is no other."""
    failure = step.failure
    assert failure is not None, "whoever gives up says why"
    reply = Made(text=f"{context.policy.texts.error} {failure.sentence}".strip())
    step.say(reply)
    step.conclude("failed", reply, failure=failure)


def rest_failed(step: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The turn is over, and nothing goes on by itself. What wakes nobody enters, as at any rest; what wakes waits for a
    retry or for another message."""
    failure = step.failure
    assert failure is not None, "whoever gives up says why"
    step.conclude("failed", failure=failure)
    leave_turn(step, context)
    step.let_in(waiting for waiting in step.inbox if waiting.silent)
    return Failed(
        kind=failure.kind,
        sentence=failure.sentence,
        turn=step.turn.number,
        tried_again=step.turn.tries_again,
        relay=step.turn.relay,
        inbox=step.inbox,
        book=step.book,
    )


def leave_turn(step: StepBuilder[State], context: Context) -> None:
    """The turn is over, and this is what it came to; whoever started a sub-agent is told."""
    ending = step.ending
    assert ending is not None, "whoever ends a turn says how"
    turn = step.turn
    step.ended = ending.replace(
        usage=turn.usage,
        deliveries=turn.deliveries,
        user_response=spoken_and_delivered(turn),
        silent=not turn.deliveries,
    )
    if context.role == "sub_agent":
        notify_parent(step, ending)


def notify_parent(step: StepBuilder[State], ending: TurnEnded) -> None:
    """The last text of a sub-agent is its result. Without one it failed, and a sentence of the policy may say why."""
    said, status = ending.final_content, ending.status
    if status in ("completed", "incomplete"):
        said = step.turn.final or step.turn.claim or said
        status = status if isinstance(said, Heard) else "failed"
    step.act(NotifyParent(effect_id=step.next_id(), status=status, said=said))


def deliver(step: StepBuilder[State], context: Context) -> None:
    """Hand over what the turn has yet to hand over."""
    ending = step.ending
    assert ending is not None, "whoever ends a turn says how"
    failed = ending.status == "failed"
    for said, relayed in outstanding(step.turn, ending.final_content, context, failed=failed):
        step.deliver(said, relayed=relayed)
