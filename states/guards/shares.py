"""What sub-agents may use up of what their parent has left."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..policy.policy import Policy
from ..values.acts import SubAgents
from ..values.children import Share
from ..values.turn import TurnRecord

N = TypeVar("N", int, float)


def shares_of(act: SubAgents, turn: TurnRecord, at: datetime, policy: Policy) -> tuple[Share, ...] | None:
    """What each of these sub-agents may use up: an equal share of the tokens and the money that the turn has left, all
    the time that it has left, because they work side by side, and no more than its task says. None if nothing is left
    to share. `Pure.`"""
    limits, spent, number = policy.limits, turn.spent, len(act.tasks)
    tokens = None if limits.tokens is None else (limits.tokens - spent.tokens) // number
    cost = None if limits.cost is None else (limits.cost - (spent.cost or 0.0)) / number
    seconds = None if limits.seconds is None else limits.seconds - max(0.0, (at - turn.since).total_seconds())
    if any(left is not None and left <= 0 for left in (tokens, cost, seconds)):
        return None
    return tuple(
        Share(
            requests=min(policy.sub_agents.requests, task.requests or policy.sub_agents.requests),
            tokens=_least(tokens, task.tokens),
            cost=_least(cost, task.cost),
            seconds=seconds,
        )
        for task in act.full_tasks
    )


def _least(*limits: N | None) -> N | None:
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
