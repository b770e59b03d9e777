"""What a tool's result does beside being read, and what it may not do."""

from __future__ import annotations

from ..effects import SendToAgent
from ..policy.policy import Policy
from ..projections.reply_text import text_of_reply
from ..states import InRound
from ..step_builder import StepBuilder
from ..values.acts import AgentMail, Speech, SubAgents, WorkComplete, with_indexes
from ..values.messages import ToolResult
from ..values.round import RoundCall
from ..values.turn import Spoken


def fault_of(call: RoundCall, result: ToolResult, policy: Policy, *, cancelled: bool) -> str | None:
    """Why none of the acts of this result is carried out, or None if they are. One that tells of an error has no acts:
    it is only read.

    Sub-agents are spawned by a row of their own: whoever asks here has no use for them. `Pure.`
    """
    texts = policy.texts
    for act in () if result.error else result.acts:
        if act.type not in call.acts:
            return texts.act_not_declared
        if isinstance(act, SubAgents):
            return texts.cancelled if cancelled else texts.act_not_exclusive
        if isinstance(act, Speech) and act.when == "now" and not call.exclusive:
            return texts.act_not_exclusive
        if isinstance(act, Speech) and policy.speech.empty == "error" and not text_of_reply(act.text, policy).strip():
            return texts.nothing_said
    return None


def carry_out(draft: StepBuilder[InRound], call: RoundCall, result: ToolResult) -> None:
    """Record what was said, deliver what was said for now, post what was written, note what was claimed."""
    if result.error:
        return
    for act, index in with_indexes(result.acts):
        said = draft.heard(index)
        if isinstance(act, Speech):
            place = (call.seq, draft.open_round.place(call.call_id), index)
            spoken = Spoken(said=said, place=place, now=act.when == "now")
            draft.change_turn(said=tuple(sorted((*draft.turn.said, spoken), key=lambda one: one.place)))
            if spoken.now:
                draft.deliver(said)
        elif isinstance(act, WorkComplete):
            draft.set_round(draft.open_round.claimed(said))
        elif isinstance(act, AgentMail):
            post(draft, act, index)


def post(draft: StepBuilder[InRound], mail: AgentMail, index: int) -> None:
    """Send a message to another agent."""
    draft.act(
        SendToAgent(
            effect_id=draft.next_id(),
            target=mail.target,
            said=draft.heard(index),
            audience=mail.audience,
            silent=mail.silent,
        )
    )
