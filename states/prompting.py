"""What the model is told in passing: reminders of the rules, and other words for a request that came to nothing.

Such a prompt belongs to one request. It is named by the effect, put into that request, and never enters the transcript,
the updates or the next turn (case S10).
"""

from __future__ import annotations

from .context import Context
from .messages import Made
from .policy import Policy
from .replies import text_of_reply
from .turn import TurnRecord


def due_nudge(turn: TurnRecord, context: Context, *, text: str) -> str | None:
    """What the model is reminded of, should the turn be about to end with this text; None if it may end. `Pure.`"""
    policy = context.policy
    if turn.nudges >= policy.nudges:
        return None
    if policy.ends_on == "work_complete" and turn.claim is None:
        return policy.texts.nudge
    if not _is_silent(turn, context, text):
        return None
    if turn.relay and policy.relay == "nudge_then_deliver" and turn.nudges == 0:
        return policy.texts.relay
    return policy.texts.speak if policy.silent == "nudge" else None


def _is_silent(turn: TurnRecord, context: Context, text: str) -> bool:
    """Whether nothing would reach the user."""
    if turn.said or turn.deliveries:
        return False
    return _hides_text(context.policy) or not text_of_reply(text, context.policy).strip()


def _hides_text(policy: Policy) -> bool:
    return policy.text == "thought" and policy.silent != "fallback"


def wants_text(context: Context) -> bool:
    """Whether a turn that ends without words misses something. Where text is only a thought it does not, be the thought
    written down or not (case B7); but a sub-agent answers by its text (case P25). `Pure.`"""
    policy = context.policy
    return not _hides_text(policy) or policy.ends_on != "text" or context.role == "sub_agent"


def after_empty(turn: TurnRecord, context: Context) -> dict[str, object] | None:
    """How the next request differs after a response with nothing in it, as changes to the turn's record; None if there
    is no further way to ask (cases J11, J20). Who ends by a claim is reminded of it instead (case S10), and once it is
    made of the answer that is missing (S17). `Pure.`"""
    policy, is_claimed = context.policy, turn.claim is not None
    if turn.worked and not turn.fell_back and (policy.ends_on == "text" or is_claimed):
        if turn.empties < policy.empty.in_a_row:
            return {}
        words = policy.texts.answer_missing if is_claimed else policy.texts.fallback
        return {"nudge": Made(text=words), "fell_back": True}
    if turn.fell_back and turn.plain_retries < policy.plain_retry:
        return {"plain": True, "plain_retries": turn.plain_retries + 1}
    nudge = due_nudge(turn, context, text="")
    return None if nudge is None else {"nudge": Made(text=nudge), "nudges": turn.nudges + 1}
