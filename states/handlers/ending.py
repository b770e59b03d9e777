"""END_TURN and GIVE_UP: what a turn came to, what of it reaches the user, and how it is left.

Whatever ends a turn first says how (`StepBuilder.conclude`); here the ends meet, and the step that leaves the turn says
what was delivered.
"""

from __future__ import annotations

from ..context import Context
from ..effects import NotifyParent, SummarizeTurn
from ..events import Event
from ..policy.delivery_rules import outstanding, spoken_and_delivered
from ..states import Failed, State, Summarizing
from ..step_builder import StepBuilder
from ..values.messages import Heard, Made
from ..values.turn import TurnEnded
from .asking import conclude_with


def summarize(draft: StepBuilder[State], event: Event, context: Context) -> Summarizing:
    """What the user receives is delivered; a summary for display is written before the turn is left."""
    deliver(draft, context)
    effect_id = draft.next_id()
    draft.act(SummarizeTurn(effect_id=effect_id))
    return draft.within_turn(Summarizing, effect_id=effect_id, ending=draft.ending)


def end_turn(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """What the user receives is delivered, and the turn is over."""
    deliver(draft, context)
    leave_turn(draft, context)


def end_empty(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """The model said nothing. So that nobody is left with silence the turn ends with a sentence of ours, unless the
    rules have none, or the user receives something all the same: speech, or a message that is passed on (case D7)."""
    receives = draft.turn.deliveries or outstanding(draft.turn, None, context)
    conclude_with(draft, "" if receives else context.policy.texts.ending)


def end_complete(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is done. To be shown is what the model wrote, or else its own summary."""
    draft.conclude("completed", draft.turn.final or draft.turn.claim)


def reply_with_error(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn ends with a reply that says why there is no other (case J16)."""
    failure = draft.failure
    assert failure is not None, "whoever gives up says why"
    reply = Made(text=f"{context.policy.texts.error} {failure.sentence}".strip())
    draft.say(reply)
    draft.conclude("failed", reply, failure=failure)


def rest_failed(draft: StepBuilder[State], event: Event, context: Context) -> Failed:
    """The turn is over, and nothing goes on by itself (case P11). What wakes nobody enters, as at any rest (case D6);
    what wakes waits for a retry or for another message."""
    failure = draft.failure
    assert failure is not None, "whoever gives up says why"
    draft.conclude("failed", failure=failure)
    leave_turn(draft, context)
    draft.let_in(waiting for waiting in draft.inbox if waiting.silent)
    return Failed(
        kind=failure.kind,
        sentence=failure.sentence,
        turn=draft.turn.number,
        tried_again=draft.turn.tries_again,
        relay=draft.turn.relay,
        inbox=draft.inbox,
        book=draft.book,
    )


def leave_turn(draft: StepBuilder[State], context: Context) -> None:
    """The turn is over, and this is what it came to; whoever started a sub-agent is told (case P25)."""
    ending = draft.ending
    assert ending is not None, "whoever ends a turn says how"
    turn = draft.turn
    draft.ended = ending.replace(
        usage=turn.usage,
        deliveries=turn.deliveries,
        user_response=spoken_and_delivered(turn),
        silent=not turn.deliveries,
    )
    if context.role == "sub_agent":
        notify_parent(draft, ending)


def notify_parent(draft: StepBuilder[State], ending: TurnEnded) -> None:
    """The last text of a sub-agent is its result. Without one it failed, and a sentence of ours may say why."""
    said, status = ending.final_content, ending.status
    if status in ("completed", "incomplete"):
        said = draft.turn.final or draft.turn.claim or said
        status = status if isinstance(said, Heard) else "failed"
    draft.act(NotifyParent(effect_id=draft.next_id(), status=status, said=said))


def deliver(draft: StepBuilder[State], context: Context) -> None:
    """Hand over what the turn has yet to hand over."""
    ending = draft.ending
    assert ending is not None, "whoever ends a turn says how"
    failed = ending.status == "failed"
    for said, relayed in outstanding(draft.turn, ending.final_content, context, failed=failed):
        draft.deliver(said, relayed=relayed)
