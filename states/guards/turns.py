"""Guards about the turn: how it begins, how it ends, and whether it is taken up after a crash."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, Event, Resumed
from ..policy.policy import Policy, Recent
from ..state import Busy, State
from ..states import Compacting
from ..step_builder import StepBuilder
from ..values.failures import TRANSIENT
from ..values.turn import TurnRecord


def profile_is_open(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The router has something to choose."""
    return context.policy.route and len(context.policy.profiles) > 1


def needs_memory(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """Something of the past that the transcript does not hold belongs to this turn."""
    return may_search(step.turn, context.policy) or type(context.policy.dialogue) is Recent


def may_search(turn: TurnRecord, policy: Policy) -> bool:
    """Older conversations may be searched for the profile of this turn."""
    return policy.recall and all(profile.recall for profile in policy.profiles if profile.name == turn.profile)


def is_in_turn(step: StepBuilder[Compacting], event: Event, context: Context) -> bool:
    """The history is condensed for a request of a turn, and not at rest."""
    return step.in_turn


def is_still_failed(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The history was condensed while a failed turn waits to be tried again."""
    return type(step.state) is Compacting and step.state.failed is not None


def may_condense_again(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> bool:
    """The failure passes by itself, and attempts are left."""
    return event.kind in TRANSIENT and step.state.attempt < context.policy.retry.attempts


def replies_on_failure(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A turn that cannot go on ends with a reply instead of resting in Failed."""
    return context.policy.on_failure == "reply"


def wants_summary(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn ended well, and a summary of it is wanted."""
    ending = step.ending
    return context.policy.summarize and ending is not None and ending.status == "completed"


def may_resume(step: StepBuilder[Busy], event: Resumed, context: Context) -> bool:
    """It waits for a person, or not too many processes have died over it."""
    return not step.state.works or step.state.resumes < context.policy.recovery.resumes


def is_closing(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The conversation ends with this turn."""
    return step.closing
