"""ASK_MODEL and FIT_WINDOW: the way to the model.

All requests but retries pass here, so the limits, the window and steered messages are looked at in one place.
"""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import CompactHistory, RequestLlm
from ..events import Event
from ..guards.budgets import limit_reached
from ..policy.models import models_of
from ..replies.nudges import after_empty
from ..state import State
from ..states import Compacting, LlmRequesting
from ..step_builder import StepBuilder
from ..values.messages import Heard, Joined, Made, Reminder
from ..values.part import make_part
from ..values.revision import ANSWERS_OR_SAYS_WHY, NAMES_LIMITS, WAITS_AS_AGREED
from ..values.turn import TurnRecord
from .again import asked_again
from .human_input import take_human_input


def request_model(step: StepBuilder[State], event: Event, context: Context) -> LlmRequesting:
    """The model is asked; steered and silent messages that wait enter the transcript first."""
    if step.inbox:
        _enter_waiting(step, event, context)
    step.take_over_profile()
    if event.at < step.turn.since and context.revision >= WAITS_AS_AGREED:
        step.change_turn(since=event.at)  # the clock was set back: the turn's time is counted from now
    step.change_turn(requests=step.turn.requests + 1)
    return send(step, event.at, context, attempt=1)


def _enter_waiting(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Let the steered and silent messages that wait enter the transcript. Steering is human input."""
    entering = tuple(message for message in step.inbox if message.steer or message.silent)
    step.enter_transcript(entering)
    if any(message.steer for message in entering):
        take_human_input(step, event.at, context)
        step.change_turn(internal=False)


def send(step: StepBuilder[State], at: datetime, context: Context, *, attempt: int) -> LlmRequesting:
    """Send the request that the turn wants. A further attempt counts as the same request."""
    effect_id = step.next_id()
    step.add_effect(llm_request(effect_id, step.turn, at, context))
    return step.within_turn(LlmRequesting, effect_id=effect_id, attempt=attempt)


def llm_request(effect_id: int, turn: TurnRecord, at: datetime, context: Context) -> RequestLlm:
    """The request that this turn wants now. The last one of its budget goes out without tools, if the policy says so. A
    plain request reminds the model of nothing. `Pure.`"""
    policy, profile, is_plain = context.policy, turn.profile, turn.plain
    limits = policy.limits
    is_last = turn.requests >= limits.requests and limits.last == "answer_now"
    return make_part(
        RequestLlm,
        {
            "effect_id": effect_id,
            "model": asked_model(turn, context),
            "profile": profile,
            "memory": turn.memory,
            "nudge": None if is_plain else _nudge_of(turn, context),
            "plain": is_plain,
            "tool_choice": "none" if is_last or is_plain else "auto",
            "at": at,
        },
    )


def asked_model(turn: TurnRecord, context: Context) -> str:
    """The name of the model that this turn asks now. `Pure.`"""
    return models_of(context.policy, turn.profile)[turn.model].name


@asked_again(RequestLlm)
def _request_again(state: LlmRequesting, effect_id: int, at: datetime, context: Context) -> RequestLlm:
    """The request that the turn of this state wants, at this moment. `Pure.`"""
    return llm_request(effect_id, state.turn, at, context)


def _nudge_of(turn: TurnRecord, context: Context) -> Reminder | None:
    """What the model is reminded of in the next request: the messages for the user that earlier turns left, until
    something was said, why its newest claim was rejected, and the nudge."""
    rejection, nudge = turn.rejection, turn.nudge
    overdue: tuple[Heard | Made, ...] = ()
    if turn.overdue and not (turn.said or turn.deliveries):
        overdue = (Made(text=context.policy.texts.overdue), *turn.overdue)
    elif rejection is None or nudge is None:
        return rejection or nudge
    return Joined(parts=(*overdue, *(one for one in (rejection, nudge) if one is not None)))


def compact(step: StepBuilder[State], event: Event, context: Context) -> Compacting:
    """The history does not fit: all of it is compacted, except for what people said in this turn."""
    return compact_up_to(step, step.seq)


def compact_up_to(step: StepBuilder[State], up_to: int) -> Compacting:
    """Compact what entered up to this step."""
    effect_id = step.next_id()
    turn = step.turn if step.in_turn else None
    step.add_effect(compact_effect(effect_id, up_to, turn))
    return Compacting(
        book=step.book, turn=turn, inbox=step.inbox, resumes=step.resumes, effect_id=effect_id, up_to=up_to
    )


def compact_effect(effect_id: int, up_to: int, turn: TurnRecord | None) -> CompactHistory:
    """The compaction for this turn, or, without one, at rest. `Pure.`"""
    since = None if turn is None else turn.tries_again or turn.number
    return CompactHistory(effect_id=effect_id, up_to=up_to, turn=since)


@asked_again(CompactHistory)
def _compact_again(state: Compacting, effect_id: int, at: datetime, context: Context) -> CompactHistory:
    """The compaction that this state waits for. `Pure.`"""
    return compact_effect(effect_id, state.up_to, state.turn)


def stop_at_limit(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The turn may not ask the model again and ends with the policy's sentence for that."""
    name_limit(step, event, context)
    conclude_with(step, limit_sentence(context))


def limit_sentence(context: Context) -> str:
    """The policy's sentence for a turn that ends at its limit; without one, that for a turn without an answer.
    `Pure.`"""
    texts = context.policy.texts
    return texts.limit if texts.limit.strip() or context.revision < ANSWERS_OR_SAYS_WHY else texts.ending


def name_limit(step: StepBuilder[State], event: Event, context: Context) -> None:
    """Note the limit because of which the turn ends although the model should be asked again. The cost of the event
    must have been counted."""
    if context.revision >= NAMES_LIMITS:
        step.change_turn(limit=limit_reached(context.policy.limits, step.turn, event, step.turn.spent))


def conclude_with(step: StepBuilder[State], text: str) -> None:
    """End the turn as incomplete with this sentence, or, if it is empty, without any text."""
    if text.strip():
        step.persist(Made(text=text))
        step.conclude("incomplete", Made(text=text))
    else:
        step.conclude("incomplete")


def prompt_again(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The response was empty; the next request asks in other words."""
    again = after_empty(step.turn, context)
    assert again is not None, "the guard of this branch finds a way to ask again"
    step.change_turn(**again)
