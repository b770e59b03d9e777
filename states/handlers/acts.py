"""The acts that a tool's result carries: whether they are allowed, and how they are carried out."""

from __future__ import annotations

from ..effects import SendToAgent
from ..policy.policy import Policy
from ..replies.reply_text import text_of_reply
from ..state import InRound
from ..step_builder import StepBuilder
from ..values.acts import Act, AgentMail, Speech, SubAgents, Transfer, WorkComplete, with_indexes
from ..values.messages import ToolResult
from ..values.round import RoundCall
from ..values.turn import Spoken


def fault_of(call: RoundCall, result: ToolResult, policy: Policy, *, cancelled: bool) -> str | None:
    """The reason why none of the acts of this result is carried out, or None if they are.

    An error result carries no acts: the model only reads it. Sub-agents are spawned by a row of their own, so they are
    a fault here. `Pure.`
    """
    texts = policy.texts
    for act in () if result.error else result.acts:
        if act.type not in call.acts:
            return texts.act_not_declared
        if isinstance(act, SubAgents):
            return texts.cancelled if cancelled else texts.act_not_exclusive
        if _must_be_alone(act) and not call.exclusive:
            return texts.act_not_exclusive
        if isinstance(act, Transfer) and not policy.has_profile(act.profile):
            return texts.unknown_profile
        if isinstance(act, Speech) and policy.speech.empty == "error" and not text_of_reply(act.text, policy).strip():
            return texts.nothing_said
    return None


def _must_be_alone(act: Act) -> bool:
    """Whether the tool of this act must run alone, so that the order of acts does not depend on which tool is
    faster."""
    return isinstance(act, Transfer) or (isinstance(act, Speech) and act.when == "now")


def carry_out(step: StepBuilder[InRound], call: RoundCall, result: ToolResult) -> None:
    """Carry out the acts of a result: record speech, deliver speech for now, send mail, note a claim, change the
    profile."""
    if result.error:
        return
    for act, index in with_indexes(result.acts):
        said = step.heard(index)
        if isinstance(act, Speech):
            place = (call.seq, step.open_round.place(call.call_id), index)
            spoken = Spoken(said=said, place=place, now=act.when == "now")
            step.change_turn(said=tuple(sorted((*step.turn.said, spoken), key=lambda one: one.place)))
            if spoken.now:
                step.deliver(said)
        elif isinstance(act, WorkComplete):
            step.set_round(step.open_round.with_claim(said))
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
