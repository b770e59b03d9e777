"""Out of `AwaitingSubAgents`: the sub-agents finish, one after the other, or their time is over.

What each came to is kept by reference until all have finished; together they are the result of the call that started
them, so each outcome reaches the model exactly once (case P24).
"""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import Abort, CancelSubAgent, SpawnSubAgent
from ..events import DeadlineReached, EffectFailed, SubAgentFinished
from ..states import AwaitingSubAgents, Cancelling, InTurn, State
from ..step_builder import StepBuilder
from ..values.messages import Heard, Joined, Made
from .again import asked_again


def take_outcome(draft: StepBuilder[InTurn], event: SubAgentFinished | EffectFailed) -> None:
    """What this sub-agent came to; one that could not be started failed."""
    status = event.status if isinstance(event, SubAgentFinished) else "failed"
    if isinstance(event, SubAgentFinished):
        draft.spend(event.usage)
    draft.set_round(draft.open_round.finish(event.effect_id, status, draft.heard()))


def keep_outcome(
    draft: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> AwaitingSubAgents:
    """Others still work."""
    take_outcome(draft, event)
    return draft.same(turn=draft.turn, round=draft.open_round, resumes=0)


def take_last_outcome(
    draft: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> None:
    """All have finished: the call has its result."""
    take_outcome(draft, event)
    settle_children(draft, context, "")
    if draft.state.deadline is not None:
        draft.act(Abort(effect_id=draft.state.deadline.effect_id))


def go_on_without(draft: StepBuilder[AwaitingSubAgents], event: DeadlineReached, context: Context) -> None:
    """The time is over: the turn goes on with what has come, and the rest is stopped (case P26)."""
    for child in draft.open_round.unfinished:
        draft.act(CancelSubAgent(effect_id=child.effect_id))
    settle_children(draft, context, context.policy.texts.child_late)


def settle_children(draft: StepBuilder[State], context: Context, unfinished: str) -> None:
    """The call that started the sub-agents gets its result; those that still work count with the text given."""
    children = draft.open_round.children
    if not children:
        return
    parts: list[Heard | Made] = []
    for number, child in enumerate(children, start=1):
        status = child.status or "cancelled"
        parts += [
            Made(text=f"{context.policy.texts.child} {number} ({status}):"),
            child.outcome or Made(text=unfinished),
        ]
    failed = any(child.status != "completed" for child in children)
    draft.settle(children[0].call_id, Joined(parts=tuple(parts)), error=failed)
    draft.set_round(draft.open_round.replace(children=()))


@asked_again(SpawnSubAgent)
def _spawn_again(
    state: AwaitingSubAgents | Cancelling, effect_id: int, at: datetime, context: Context
) -> SpawnSubAgent:
    """The sub-agent that works as this effect. `Pure.`"""
    task = next(child.task for child in state.round.children if child.effect_id == effect_id)
    return SpawnSubAgent(effect_id=effect_id, task=task)
