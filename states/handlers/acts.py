"""The acts that a tool's result carries: whether they are allowed, and how they are carried out."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import SendToAgent
from ..events import ToolComplete, ToolReconciled
from ..guards.roles import may_act
from ..guards.sub_agents import spawn_fault
from ..replies.reply_text import text_of_reply
from ..state import InRound
from ..states import Cancelling
from ..step_builder import StepBuilder
from ..values.acts import Act, AgentMail, Speech, SubAgents, Transfer, WorkComplete, with_indexes
from ..values.messages import ToolResult
from ..values.revision import ANSWERS_OR_SAYS_WHY
from ..values.round import RoundCall
from ..values.turn import Spoken


def fault_of(
    step: StepBuilder[InRound], call: RoundCall, event: ToolComplete | ToolReconciled, context: Context
) -> str | None:
    """The reason why none of the acts of the call's result is carried out, or None if they are.

    An error result carries no acts: the model only reads it. Sub-agents are spawned by a row of their own, so they are
    a fault here. `Pure.`
    """
    result = event.result
    if result is None or result.error or not (acts := result.acts):
        return None
    faults = (_fault_of_act(step, call, act, event.at, context) for act in acts)
    return next((fault for fault in faults if fault is not None), None)


def _fault_of_act(step: StepBuilder[InRound], call: RoundCall, act: Act, at: datetime, context: Context) -> str | None:
    policy, texts, fault = context.policy, context.policy.texts, None
    if act.type not in call.acts:
        fault = texts.act_not_declared
    elif not may_act(act, context):
        fault = texts.act_not_for_role
    elif isinstance(act, SubAgents) and isinstance(step.state, Cancelling):
        fault = texts.cancelled
    elif isinstance(act, SubAgents):
        fault = spawn_fault(act, step.turn, at, context) or texts.act_not_exclusive
    elif _must_be_alone(act) and not call.exclusive:
        fault = texts.act_not_exclusive
    elif isinstance(act, Transfer) and not policy.has_profile(act.profile):
        fault = texts.unknown_profile
    else:
        fault = _fault_of_text(act, context)
    return fault


def _fault_of_text(act: Act, context: Context) -> str | None:
    """What is missing in an act that says nothing to people. A claim's summary is the reply of a turn without any other
    text."""
    policy, text = context.policy, None
    if isinstance(act, Speech) and policy.speech.empty == "error":
        text = act.text
    elif isinstance(act, WorkComplete) and context.revision >= ANSWERS_OR_SAYS_WHY:
        text = act.summary
    return None if text is None or text_of_reply(text, policy).strip() else policy.texts.nothing_said


def _must_be_alone(act: Act) -> bool:
    """Whether the tool of this act must run alone, so that the order of acts does not depend on which tool is
    faster."""
    return isinstance(act, Transfer) or (isinstance(act, Speech) and act.when == "now")


def carry_out(step: StepBuilder[InRound], call: RoundCall, result: ToolResult) -> None:
    """Carry out the acts of a result: record speech, deliver speech for now, send mail, note a claim, change the
    profile."""
    acts = () if result.error else result.acts
    if not acts:
        return
    for act, index in with_indexes(acts):
        said = step.heard(index)
        if isinstance(act, Speech):
            place = (call.seq, step.round.place(call.call_id), index)
            spoken = Spoken(said=said, place=place, now=act.when == "now")
            step.change_turn(said=tuple(sorted((*step.turn.said, spoken), key=lambda one: one.place)))
            if spoken.now:
                step.deliver(said)
        elif isinstance(act, WorkComplete):
            step.round = step.round.with_claim(said)
        elif isinstance(act, AgentMail):
            post(step, act, index)
        elif isinstance(act, Transfer):
            step.profile = act.profile


def post(step: StepBuilder[InRound], mail: AgentMail, index: int) -> None:
    """Send a message to another agent."""
    step.add_effect(
        SendToAgent(
            effect_id=step.next_id(),
            target=mail.target,
            said=step.heard(index),
            audience=mail.audience,
            silent=mail.silent,
        )
    )
