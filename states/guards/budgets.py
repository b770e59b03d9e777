"""Guards about the turn's limits and the model's window: whether another request may be sent and fits."""

from __future__ import annotations

from ..context import Context
from ..events import EffectFailed, Event, LlmResponse, WorkVerified
from ..policy.models import models_of
from ..policy.policy import Limits, Recent
from ..state import State
from ..step_builder import StepBuilder
from ..values.messages import Usage
from ..values.turn import LimitKind, TurnRecord


def window_is_full(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The last request left no room in the window for another one, and the history was not just compacted."""
    return is_full(step, context, step.window_used) and not step.turn.condensed


def is_full(step: StepBuilder[State], context: Context, used: int) -> bool:
    """Whether a request of so many tokens leaves no room for another one. `Pure.`"""
    policy, turn = context.policy, step.turn
    profile, place = (step.profile, 0) if step.is_handed_over else (turn.profile, turn.model)
    window = models_of(policy, profile)[place].window
    if window is None or type(policy.dialogue) is Recent:
        return False
    return used >= policy.window * window


def budget_is_spent(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn may send no further model request."""
    turn = step.turn
    return limit_reached(context.policy.limits, turn, event, turn.spent) is not None


def spends_budget(step: StepBuilder[State], event: LlmResponse | WorkVerified | EffectFailed, context: Context) -> bool:
    """Whether the turn may send no further model request once this answer is paid for. The guards of rows use it,
    because they are asked before the cost of the answer is counted. `Pure.`"""
    spent = step.turn.spent if isinstance(event, EffectFailed) else step.turn.spent + event.usage
    return limit_reached(context.policy.limits, step.turn, event, spent) is not None


def limit_reached(limits: Limits, turn: TurnRecord, event: Event, spent: Usage) -> LimitKind | None:
    """The limit because of which the turn may send no further model request, or None if it may send one. `Pure.`"""
    return "requests" if turn.requests >= limits.requests else limit_used_up(limits, turn, event, spent)


def limit_used_up(limits: Limits, turn: TurnRecord, event: Event, spent: Usage) -> LimitKind | None:
    """Which of the tokens, the money and the time of the turn are used up; None if there is some left of each.
    `Pure.`"""
    bounds = limits.__dict__  # read several times as fast as the model itself
    tokens, cost, seconds = bounds["tokens"], bounds["cost"], bounds["seconds"]
    if tokens is not None and spent.tokens >= tokens:
        return "tokens"
    if cost is not None and (spent.cost or 0.0) >= cost:
        return "cost"
    if seconds is not None and (event.at - turn.since).total_seconds() >= seconds:
        return "seconds"
    return None
