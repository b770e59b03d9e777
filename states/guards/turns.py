"""Guards about the turn: how it begins and ends, and whether it is resumed after a crash."""

from __future__ import annotations

from ..context import Context, are_among
from ..events import EffectFailed, Event, ProfileTransferred, Resumed, ToolsChanged
from ..policy.policy import Policy, Recent
from ..state import Busy, InFlight, State
from ..states import Compacting
from ..step_builder import StepBuilder
from ..values.failures import TRANSIENT
from ..values.revision import NAMES_WHAT_WAS_LEFT
from ..values.turn import TurnRecord
from .messages import goes_on_after_failure


def profile_is_open(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The policy lets a router choose among several profiles, and the conversation was handed to none of them."""
    return not step.profile and context.policy.route and len(context.policy.profiles) > 1


def needs_memory(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn needs something of the past that is not in the transcript."""
    policy = context.policy
    return may_search(step.turn, policy) or type(policy.dialogue) is Recent or policy.documents


def may_search(turn: TurnRecord, policy: Policy) -> bool:
    """Whether older conversations may be searched for the profile of this turn. `Pure.`"""
    return policy.recall and all(profile.recall for profile in policy.profiles if profile.name == turn.profile)


def starts_next_turn(step: StepBuilder[State], event: ToolsChanged, context: Context) -> bool:
    """The change of tools begins with the turn after the newest one, so it leaves the turn under way alone. One that
    `narrows` brings no tool that the conversation does not have."""
    if event.from_turn != step.turns + 1:
        return False
    return not event.narrows or are_among(event.tools, context.tools_in(event.from_turn))


def knows_profile(step: StepBuilder[State], event: ProfileTransferred, context: Context) -> bool:
    """The policy has the profile to which the conversation is to be handed over."""
    return context.policy.has_profile(event.profile)


def is_in_turn(step: StepBuilder[Compacting], event: Event, context: Context) -> bool:
    """The history is compacted for a request of a turn, and not at rest."""
    return step.in_turn


def is_still_failed(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The history was compacted at rest while a failed turn can still be tried again, and no message has come that
    begins another one."""
    if type(step.state) is not Compacting or step.state.failed is None:
        return False
    return not goes_on_after_failure(step, event, context)


def may_compact_again(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> bool:
    """The failure is transient, and attempts are left."""
    return event.kind in TRANSIENT and step.state.attempt < context.policy.retry.attempts


def replies_on_failure(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A turn that cannot continue ends with a reply instead of resting in Failed."""
    return context.policy.on_failure == "reply"


def wants_summary(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn completed, and the policy wants a summary of it."""
    ending = step.ending
    return context.policy.summarize and ending is not None and ending.status == "completed"


def may_resume(step: StepBuilder[Busy], event: Resumed, context: Context) -> bool:
    """Few enough processes have died in this state, or the one that has died does not count. An imported turn goes on
    in no process."""
    if event.imported:
        return False
    return not counts_as_resume(step.state, event, context) or step.state.resumes < context.policy.recovery.resumes


def counts_as_resume(state: Busy, event: Resumed, context: Context) -> bool:
    """Whether the process that has died counts: not in a wait for a person, and not if nothing is in flight that it
    left. `Pure.`"""
    return state.works and bool(left_in_flight(state, event, context))


def left_in_flight(state: Busy, event: Resumed, context: Context) -> InFlight:
    """The effects in flight that an earlier process has left. What the report does not name has been begun since. A
    report that names nothing, or in a log that began before revision 5, is about everything. `Pure.`"""
    in_flight = state.in_flight()
    if not event.open or context.revision < NAMES_WHAT_WAS_LEFT:
        return in_flight
    return {effect_id: kind for effect_id, kind in in_flight.items() if effect_id in event.open}


def is_closing(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The conversation ends with this turn, or it is a sub-agent and its turn has ended."""
    return step.closing or (context.has_one_task and step.ended is not None)


def has_one_task(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """It is a sub-agent, which closes when its turn has ended."""
    return context.has_one_task
