"""CHECK_WORK, and out of `Verifying`: whether the work is done as the model claims."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import VerifyWork
from ..events import EffectFailed, Event, WorkVerified
from ..policy.delivery_rules import deliverable
from ..states import State, Verifying
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.turn import Failure, TurnRecord
from .again import asked_again


def ask_for_answer(draft: StepBuilder[State], event: Event, context: Context) -> None:
    """The work is claimed, but the user has heard nothing: the model is asked once for its answer (case S17)."""
    draft.tell(Made(text=context.policy.texts.answer_missing))
    draft.change_turn(asked_to_speak=True)


def verify(draft: StepBuilder[State], event: Event, context: Context) -> Verifying:
    """Have the claim checked against what the user receives (case S11)."""
    effect_id = draft.next_id()
    draft.act(verify_effect(effect_id, draft.turn, context))
    return draft.within_turn(Verifying, effect_id=effect_id)


def verify_effect(effect_id: int, turn: TurnRecord, context: Context) -> VerifyWork:
    """The check that this turn wants. `Pure.`"""
    assert turn.claim is not None, "only a claim is checked"
    return VerifyWork(effect_id=effect_id, claim=turn.claim, deliverable=deliverable(turn, context))


@asked_again(VerifyWork)
def _verify_again(state: Verifying, effect_id: int, at: datetime, context: Context) -> VerifyWork:
    """The check that the turn of this state wants. `Pure.`"""
    return verify_effect(effect_id, state.turn, context)


def end_verified(draft: StepBuilder[Verifying], event: WorkVerified, context: Context) -> None:
    """The claim holds: the turn ends with what was checked (case S6)."""
    draft.spend(event.usage)
    draft.conclude("completed", draft.turn.final or draft.turn.claim)


def send_back(draft: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> None:
    """The claim does not hold: why, and what is missing, goes back to the model (case S11). It is told until it claims
    again that the work is complete, since mending it may take several requests."""
    reject(draft, event)
    draft.change_turn(claim=None, rejection=draft.heard())


def end_unverified(draft: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> None:
    """The claim failed too often: the turn ends as incomplete, with the reason; what was said is delivered (S21)."""
    reject(draft, event)
    sentence = event.reason if isinstance(event, WorkVerified) else event.sentence
    failure = Failure(kind="unverified", sentence=sentence)
    draft.conclude("incomplete", draft.turn.final or draft.turn.claim, failure=failure)


def reject(draft: StepBuilder[Verifying], event: WorkVerified | EffectFailed) -> None:
    """Count the failure; a check that broke counts as one."""
    if isinstance(event, WorkVerified):
        draft.spend(event.usage)
    draft.change_turn(rejections=draft.turn.rejections + 1)
