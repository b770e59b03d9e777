"""Guards about sub-agents: whether a call may start them, what they ask, and whether others still work."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..events import EffectFailed, SubAgentAsked, SubAgentFinished, ToolComplete, UserCancel
from ..states import AwaitingSubAgents, ToolExecuting
from ..step_builder import StepBuilder
from ..values.acts import SubAgents
from ..values.revision import AGENTS
from ..values.turn import TurnRecord
from .people import comes_too_late
from .roles import may_ask_user
from .rounds import runs_alone
from .shares import shares_of


def spawns_children(step: StepBuilder[ToolExecuting], event: ToolComplete, context: Context) -> bool:
    """The tool starts sub-agents and does nothing else, may do so, and the rules allow these sub-agents."""
    acts = event.result.acts
    if len(acts) != 1 or not isinstance(acts[0], SubAgents) or event.result.error:
        return False
    call = step.round.call(event.effect_id)
    may_spawn = "children" in call.acts and call.exclusive and runs_alone(step, event, context)
    return may_spawn and spawn_fault(acts[0], step.turn, event.at, context) is None


def spawn_fault(act: SubAgents, turn: TurnRecord, at: datetime, context: Context) -> str | None:
    """The reason why this turn may not start these sub-agents, or None if it may. `Pure.`"""
    rules, texts = context.policy.sub_agents, context.policy.texts
    if context.revision < AGENTS:
        return None
    if context.caller.is_too_deep:
        return texts.too_deep
    if turn.children + len(act.tasks) > rules.number:
        return texts.too_many_children.replace("{number}", str(rules.number))
    if any(not text.strip() for text in act.texts):
        return texts.nothing_said
    if not all(context.policy.has_profile(task.profile) for task in act.full_tasks if task.profile):
        return texts.unknown_profile
    return texts.nothing_left if shares_of(act, turn, at, context.policy) is None else None


def asks_no_longer(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> bool:
    """The sub-agent no longer asks what it asked."""
    return event.questions is None


def may_ask_for_child(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> bool:
    """The questions of sub-agents are put to the user, and there is one."""
    return context.policy.sub_agents.questions == "ask_user" and may_ask_user(context)


def declines_for_child(step: StepBuilder[AwaitingSubAgents], event: UserCancel, context: Context) -> bool:
    """The cancel names the question of a sub-agent that a person sees, and the policy lets the sub-agent go on."""
    names_question = event.call_id is not None and not comes_too_late(step, event, context)
    return names_question and context.policy.questions.cancel == "resume"


def others_work(step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context) -> bool:
    """Other sub-agents are still working."""
    return len(step.round.unfinished) > 1
