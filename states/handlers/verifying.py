"""The junction CHECK_WORK, and rows out of `Verifying`: whether the work is as complete as the model claims."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import VerifyWork
from ..events import EffectFailed, Event, WorkVerified
from ..guards.claims import lacks_answer, may_fail_again
from ..junctions.again import asked_again
from ..junctions.asking import name_limit
from ..replies.delivery_rules import deliverable
from ..state import State
from ..states import Verifying
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.turn import Failure, TurnRecord


def ask_for_answer(step: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is claimed to be complete, but nothing was said to the user: the model is asked once for its answer."""
    step.set_nudge(Made(text=context.policy.texts.answer_missing))
    step.change_turn(asked_to_speak=True)


def verify(step: StepBuilder[State], event: Event, context: Context) -> Verifying:
    """The claim is checked against what the user receives."""
    effect_id = step.next_id()
    step.add_effect(verify_effect(effect_id, step.turn, context))
    return step.within_turn(Verifying, effect_id=effect_id)


def verify_effect(effect_id: int, turn: TurnRecord, context: Context) -> VerifyWork:
    """The check that this turn wants. `Pure.`"""
    assert turn.claim is not None, "only a claim is checked"
    return VerifyWork(effect_id=effect_id, claim=turn.claim, deliverable=deliverable(turn, context))


@asked_again(VerifyWork)
def _verify_again(state: Verifying, effect_id: int, at: datetime, context: Context) -> VerifyWork:
    """The check that the turn of this state wants. `Pure.`"""
    return verify_effect(effect_id, state.turn, context)


def end_verified(step: StepBuilder[Verifying], event: WorkVerified, context: Context) -> None:
    """The claim holds, and the turn ends with what was checked."""
    step.spend(event.usage)
    if lacks_answer(step.turn, context):
        name_limit(step, event, context)
    step.conclude("completed", step.turn.final or step.turn.claim)


def send_back(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> None:
    """The claim does not hold. The model is told why and what is missing, in each request until it claims again."""
    reject(step, event)
    step.change_turn(claim=None, rejection=step.heard())


def end_unverified(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> None:
    """The claim failed too often: the turn ends as incomplete, with the reason, and what was said is delivered."""
    reject(step, event)
    if may_fail_again(step.turn.rejections, event, context):
        name_limit(step, event, context)
    sentence = event.reason if isinstance(event, WorkVerified) else event.sentence
    failure = Failure(kind="unverified", sentence=sentence)
    step.conclude("incomplete", step.turn.final or step.turn.claim, failure=failure)


def reject(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed) -> None:
    """Count the failed check. A check that could not be made counts as failed."""
    if isinstance(event, WorkVerified):
        step.spend(event.usage)
    step.change_turn(rejections=step.turn.rejections + 1)
