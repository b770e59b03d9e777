"""What the model is reminded of, and how it is asked again after an empty response.

A nudge belongs to one request: the effect names it, the request holds it, and it never enters the transcript, the
updates or the next turn.
"""

from __future__ import annotations

from ..context import Context
from ..values.messages import Made
from ..values.revision import AGENTS, ANSWERS_OR_SAYS_WHY, KNOWS_WHO_SPEAKS
from ..values.turn import TurnRecord
from .delivery_rules import may_show_text, outstanding, text_rule
from .reply_text import text_of_reply


def owes_answer(turn: TurnRecord, context: Context) -> bool:
    """Whether a user waits for what the turn says. Nobody does if the agent has no user, or if another agent began the
    turn and no message of it must be passed on. In logs that began before there were agents, a user always counts as
    waiting. `Pure.`"""
    if context.revision < AGENTS:
        return True
    is_left_to_prompt = context.policy.relay == "prompt_only" and context.revision >= ANSWERS_OR_SAYS_WHY
    return context.role == "foreground" and (not turn.internal or (bool(turn.relay) and not is_left_to_prompt))


def due_nudge(turn: TurnRecord, context: Context, *, text: str) -> str | None:
    """What the model is reminded of if the turn would end with this text; None if it may end. `Pure.`"""
    policy = context.policy
    if turn.nudges >= policy.nudges:
        return None
    if policy.ends_on == "work_complete" and turn.claim is None:
        return policy.texts.nudge if owes_answer(turn, context) else policy.texts.claim_missing
    passes_on = turn.relay and policy.relay == "nudge_then_deliver" and turn.nudges == 0
    if not (passes_on or policy.silent == "nudge"):
        return None
    if not owes_answer(turn, context) or not _is_silent(turn, context, text):
        return None
    return policy.texts.relay if passes_on else policy.texts.speak


def _is_silent(turn: TurnRecord, context: Context, text: str) -> bool:
    """Whether nothing would reach the user."""
    if turn.said or turn.deliveries:
        return False
    return not may_show_text(context.policy) or not text_of_reply(text, context.policy).strip()


def wants_text(turn: TurnRecord, context: Context) -> bool:
    """Whether a response without text is a fault: the turn wants an answer, or the claim that is to end it. Where text
    is only a thought, or was only wanted if nothing had been said by tool, or nobody waits for an answer, nothing is
    missing, unless another agent waits for the result. `Pure.`"""
    policy, owes = context.policy, owes_answer(turn, context)
    if turn.claim is not None and (turn.said or turn.deliveries or turn.final or not owes):
        return False  # what is left is the check
    is_wanted = owes and may_show_text(policy) and not _has_said_enough(turn, context)
    return is_wanted or policy.ends_on != "text" or context.role == "sub_agent"


def _has_said_enough(turn: TurnRecord, context: Context) -> bool:
    """Whether a text would not reach the user, who has heard of the model by tool. After a check has failed the model
    has more to do."""
    has_said = bool(turn.said or turn.deliveries) and turn.rejection is None
    is_known = context.revision >= KNOWS_WHO_SPEAKS
    return has_said and is_known and text_rule(context, speaks=turn.speaks) == "fallback"


def after_empty(turn: TurnRecord, context: Context) -> dict[str, object] | None:
    """How the next request differs after an empty response, as changes of the turn's record; None if there is no
    further way to ask. Under rules that want a claim the model is reminded of the claim, or, once it has claimed, of
    the answer that is missing. `Pure.`"""
    policy, is_claimed = context.policy, turn.claim is not None
    if turn.worked and not turn.fell_back and (policy.ends_on == "text" or is_claimed):
        if turn.empties < policy.empty.in_a_row:
            return {}
        words = policy.texts.answer_missing if is_claimed else _fallback(turn, context)
        return {"nudge": Made(text=words), "fell_back": True}
    if turn.fell_back and turn.plain_retries < policy.plain_retry:
        return {"plain": True, "plain_retries": turn.plain_retries + 1}
    if (nudge := due_nudge(turn, context, text="")) is not None:
        return {"nudge": Made(text=nudge), "nudges": turn.nudges + 1}
    return {} if _may_answer_yet(turn, context) else None


def _may_answer_yet(turn: TurnRecord, context: Context) -> bool:
    """Whether the policy wants the model asked in the same words once more: it thinks, or has done nothing yet, and
    nothing else would reach the user. Not if it was cut off while it thought, which would only happen again."""
    policy = context.policy
    if not policy.empty.until_limit or policy.ends_on != "text" or turn.cut_off or turn.claim is not None:
        return False
    return (turn.only_thought or not turn.worked) and not turn.deliveries and not outstanding(turn, None, context)


def _fallback(turn: TurnRecord, context: Context) -> str:
    texts = context.policy.texts
    return texts.fallback if owes_answer(turn, context) else texts.fallback_result
