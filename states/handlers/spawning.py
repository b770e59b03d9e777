"""Sub-agents start: what each of them is asked to do, within which limits."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import SpawnSubAgent
from ..events import ToolComplete
from ..guards.shares import shares_of
from ..junctions.again import asked_again
from ..policy.policy import Limits
from ..states import AwaitingSubAgents, Cancelling, ToolExecuting
from ..step_builder import StepBuilder
from ..values.acts import SubAgents
from ..values.children import Child
from ..values.revision import AGENTS, WAITS_AS_AGREED
from ..values.round import RoundCall
from ..values.value import later


def spawn(step: StepBuilder[ToolExecuting], event: ToolComplete, context: Context) -> AwaitingSubAgents:
    """The sub-agents start, one for each task, and the conversation rests until they have finished; their outcomes are
    the result of the call."""
    call = step.round.call(event.effect_id)
    (act,) = event.result.acts
    assert isinstance(act, SubAgents), "the guard of this row has found that the tool starts sub-agents"
    children = _children(step, call, act, event.at, context)
    for child in children:
        step.add_effect(spawn_effect(child))
    step.round = step.round.spawn(call.call_id, children)
    seconds = context.policy.sub_agent_deadline
    deadline = None if seconds is None else step.start_timer(later(event.at, seconds), "deadline_reached")
    return step.within_turn(AwaitingSubAgents, call=call, round=step.round, deadline=deadline)


def _children(
    step: StepBuilder[ToolExecuting], call: RoundCall, act: SubAgents, at: datetime, context: Context
) -> tuple[Child, ...]:
    """The sub-agents of this call."""
    children = tuple(
        Child(effect_id=step.next_id(), call_id=call.call_id, task=step.heard(index))
        for index in range(1, len(act.tasks) + 1)
    )
    if context.revision < AGENTS:
        return children
    shares = shares_of(act, step.turn, at, context.policy)
    assert shares is not None, "the guard of this row has found that something is left to share"
    step.change_turn(children=step.turn.children + len(children))
    return tuple(
        child.replace(
            profile=task.profile or step.turn.profile,
            tools=task.tools,
            share=share,
            due=None if task.seconds is None else later(at, task.seconds),
            seconds=task.seconds if context.revision >= WAITS_AS_AGREED else None,
        )
        for child, task, share in zip(children, act.full_tasks, shares, strict=True)
    )


def spawn_effect(child: Child) -> SpawnSubAgent:
    """The effect that starts this sub-agent. `Pure.`"""
    share = child.share
    limits = Limits() if share is None else Limits(**dict(share))
    return SpawnSubAgent(
        effect_id=child.effect_id,
        task=child.task,
        profile=child.profile,
        tools=child.tools,
        limits=limits,
        due=child.due,
        seconds=child.seconds,
    )


@asked_again(SpawnSubAgent)
def _spawn_again(
    state: AwaitingSubAgents | Cancelling, effect_id: int, at: datetime, context: Context
) -> SpawnSubAgent:
    """The sub-agent that was started as this effect. `Pure.`"""
    return spawn_effect(next(child for child in state.round.children if child.effect_id == effect_id))
