"""Guards about a claim that the work is complete."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, Event, LlmResponse, WorkVerified
from ..replies.delivery_rules import text_rule
from ..replies.nudges import owes_answer
from ..state import State
from ..states import LlmRequesting, Verifying
from ..step_builder import StepBuilder
from ..values.turn import TurnRecord
from .budgets import budget_is_spent, spends_budget


def work_is_claimed(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model claimed earlier in the turn that the work is complete. A text after the claim does not withdraw it."""
    return step.turn.claim is not None


def round_claims_work(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The work is claimed to be complete, and every call of the round succeeded."""
    round_ = step.round
    return (round_.claim or step.turn.claim) is not None and not round_.failed and not round_.queued


def must_speak_first(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """Nothing was said to the user in this turn, and the model may be asked to do so."""
    return lacks_answer(step.turn, context) and not budget_is_spent(step, event, context)


def lacks_answer(turn: TurnRecord, context: Context) -> bool:
    """Whether nothing was said in this turn to a user who waits for it, and the model was not yet asked to do so.
    `Pure.`"""
    shows_text = text_rule(context, speaks=turn.speaks) == "reply" and turn.final is not None
    is_heard = bool(turn.said or turn.deliveries) or shows_text or not owes_answer(turn, context)
    return not is_heard and not turn.asked_to_speak


def must_be_checked(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The policy wants claims to be verified."""
    return context.policy.verify > 0


def was_verified(step: StepBuilder[Verifying], event: WorkVerified, context: Context) -> bool:
    """The claim holds."""
    return event.passed


def may_try_again(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> bool:
    """The check may fail once more, and a request is left."""
    rejected = step.turn.rejections + 1
    return may_fail_again(rejected, event, context) and not spends_budget(step, event, context)


def may_fail_again(rejections: int, event: WorkVerified | EffectFailed, context: Context) -> bool:
    """Whether the check may fail once more after so many failures. Not so where no verifier is available, because no
    other claim would pass either. `Pure.`"""
    is_unavailable = isinstance(event, EffectFailed) and event.kind == "unavailable"
    return not is_unavailable and rejections < context.policy.verify
