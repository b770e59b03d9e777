"""Guards about the tool calls of a round."""

from __future__ import annotations

from ..context import Context
from ..events import Answer, AskUserQuestionPending, Event
from ..state import State
from ..states import ToolExecuting
from ..step_builder import StepBuilder
from ..values.round import RoundCall
from .budgets import limit_used_up
from .roles import may_ask_user


def round_goes_on(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A tool is running, or one may start."""
    return bool(step.round.running) or call_to_start(step, event, context) is not None


def call_to_start(step: StepBuilder[State], event: Event, context: Context) -> RoundCall | None:
    """The call that may start now, if the limits allow it. `Pure.`"""
    call = step.round.next_to_start(context.policy.parallel)
    return call if call is not None and _tools_are_left(step, event, context) else None


def needs_approval(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The next call runs only if a person allows it, and the limits allow it."""
    return step.round.next_to_approve is not None and _tools_are_left(step, event, context)


def _tools_are_left(step: StepBuilder[State], event: Event, context: Context) -> bool:
    limits, turn = context.policy.limits, step.turn
    most = limits.tool_calls
    within_count = most is None or turn.tool_calls < most
    return within_count and limit_used_up(limits, turn, event, turn.spent) is None


def something_is_at_work(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A call is running, or a sub-agent works."""
    return step.in_round and bool(step.round.effect_ids)


def something_is_in_doubt(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """It is unknown of some call whether it ran."""
    return bool(step.round.doubtful)


def runs_alone(step: StepBuilder[ToolExecuting], event: Answer, context: Context) -> bool:
    """No other call is running."""
    return len(step.round.running) == 1


def may_ask(step: StepBuilder[ToolExecuting], event: AskUserQuestionPending, context: Context) -> bool:
    """There is a user to ask, no other call is running, and a call that waits for the answer and then goes on is
    exclusive."""
    may_suspend = not event.suspends or step.round.call(event.effect_id).exclusive
    return may_suspend and runs_alone(step, event, context) and may_ask_user(context)
