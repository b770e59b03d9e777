"""Guards about a claim of completed work."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, Event, LlmResponse, WorkVerified
from ..state import State
from ..states import LlmRequesting, Verifying
from ..step_builder import StepBuilder
from .budgets import budget_is_spent, spends_budget


def work_is_claimed(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model claimed before that the work is complete; what it says now does not undo that."""
    return step.turn.claim is not None


def round_claims_work(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The work is claimed to be complete, and every call of the round came to good."""
    round_ = step.open_round
    return not round_.queued and not round_.failed and (round_.claim or step.turn.claim) is not None


def must_speak_first(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """Nothing was said to the user, and the model was not asked for it yet."""
    turn, policy = step.turn, context.policy
    is_heard = bool(turn.said or turn.deliveries) or (policy.text == "reply" and turn.final is not None)
    return not is_heard and not turn.asked_to_speak and not budget_is_spent(step, event, context)


def must_be_checked(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """Claims are verified here."""
    return context.policy.verify > 0


def was_verified(step: StepBuilder[Verifying], event: WorkVerified, context: Context) -> bool:
    """The claim holds."""
    return event.passed


def may_try_again(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> bool:
    """The check may fail once more, and there is a request left for mending it. Where nobody can check, no other claim
    would fare better."""
    if isinstance(event, EffectFailed) and event.kind == "unavailable":
        return False
    return step.turn.rejections + 1 < context.policy.verify and not spends_budget(step, event, context)
