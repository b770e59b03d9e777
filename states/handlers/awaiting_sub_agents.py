"""Rows out of `AwaitingSubAgents`: the sub-agents finish one by one, or their deadline passes.

Each outcome is kept by reference until all sub-agents have finished. Together the outcomes are the result of the call
that started them, so each reaches the model exactly once.
"""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import Abort, CancelSubAgent, SpawnSubAgent
from ..events import DeadlineReached, EffectFailed, SubAgentFinished
from ..junctions.again import asked_again
from ..junctions.rounds import settle_children
from ..state import InTurn
from ..states import AwaitingSubAgents, Cancelling
from ..step_builder import StepBuilder


def take_outcome(step: StepBuilder[InTurn], event: SubAgentFinished | EffectFailed) -> None:
    """Note the outcome of this sub-agent. A sub-agent that could not be started counts as failed."""
    status = event.status if isinstance(event, SubAgentFinished) else "failed"
    if isinstance(event, SubAgentFinished):
        step.spend(event.usage)
    step.set_round(step.open_round.finish(event.effect_id, status, step.heard()))


def keep_outcome(
    step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> AwaitingSubAgents:
    """The outcome is noted; other sub-agents still work."""
    take_outcome(step, event)
    return step.same(turn=step.turn, round=step.open_round, resumes=0)


def take_last_outcome(
    step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> None:
    """All sub-agents have finished, and the call has its result."""
    take_outcome(step, event)
    settle_children(step, context, "")
    if step.state.deadline is not None:
        step.add_effect(Abort(effect_id=step.state.deadline.effect_id))


def go_on_without(step: StepBuilder[AwaitingSubAgents], event: DeadlineReached, context: Context) -> None:
    """The deadline has passed: the turn goes on with the outcomes so far, and the other sub-agents are stopped."""
    for child in step.open_round.unfinished:
        step.add_effect(CancelSubAgent(effect_id=child.effect_id))
    settle_children(step, context, context.policy.texts.child_late)


@asked_again(SpawnSubAgent)
def _spawn_again(
    state: AwaitingSubAgents | Cancelling, effect_id: int, at: datetime, context: Context
) -> SpawnSubAgent:
    """The sub-agent that was started as this effect. `Pure.`"""
    task = next(child.task for child in state.round.children if child.effect_id == effect_id)
    return SpawnSubAgent(effect_id=effect_id, task=task)
