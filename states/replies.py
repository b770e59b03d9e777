"""What of a turn reaches the user, by the rules of the policy, and what the model is reminded of when nothing would.

Speech for now is delivered when it is said. What the end of a turn delivers is decided here, both for the end itself
and for the check of a claim before it. Texts are delivered in the order in which they were said.

A nudge belongs to one request: the effect names it, the request holds it, and it never enters the transcript, the
updates or the next turn.

A model that writes a tool protocol into its text puts it on lines of its own, behind a reserved marker; those lines are
no answer. The log holds the model's text as it was; the marked lines are removed where the text is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from .context import Context
from .policy import Policy
from .values.messages import Heard, Made, Said
from .values.turn import EndedStatus, Owed, Spoken, TurnRecord

TextRule = Literal["reply", "fallback", "thought"]
"""Whether the model's text reaches the user: always, only if nothing was said by tool, or never."""

Outstanding = tuple[tuple[Said, bool], ...]
"""The texts that a turn has yet to deliver, in order, each with whether it is another agent's message that is passed on
unchanged."""


def text_rule(context: Context, *, speaks: bool) -> TextRule:
    """What becomes of the text that answers a request; `speaks` says whether the request offered a tool that speaks to
    the user.

    What the model is told about its text, what is delivered, and what hosts show as an answer all follow from this, so
    they agree. `Pure.`
    """
    policy = context.policy
    if policy.text == "auto":
        return "fallback" if speaks else "reply"
    return "fallback" if policy.text == "thought" and policy.silent == "fallback" else policy.text


def outstanding(turn: TurnRecord, text: Said | None, context: Context, *, failed: bool = False) -> Outstanding:
    """What a turn has yet to deliver if it ends with this text: its own words, then the messages that it was to pass on
    to the user. A turn that failed delivers only its error. `Pure.`"""
    policy = context.policy
    own: list[Said] = [] if failed else [spoken.said for spoken in _chosen(turn, policy)]
    is_silent = not (turn.deliveries or own)
    if text is not None and _shows_text(turn, context, is_silent=is_silent, failed=failed):
        own.append(text)
    return *[(said, False) for said in own], *_passed_on(turn, own, policy)


def deliverable(turn: TurnRecord, context: Context) -> tuple[Said, ...]:
    """Everything that the user will have received if the turn ends with its claim. For an agent without a user its
    result is added, because otherwise only another agent would see it. `Pure.`"""
    assert turn.claim is not None, "only a claim is checked"
    result = turn.final or turn.claim
    delivered = tuple(delivery.said for delivery in turn.deliveries)
    due = tuple(said for said, _ in outstanding(turn, result, context))
    shown = () if context.role == "foreground" else (result,)
    return *delivered, *due, *shown


def left_owed(owed: tuple[Owed, ...], turn: TurnRecord, status: EndedStatus) -> tuple[Owed, ...]:
    """Of the messages for the user, those that stay to be passed on when the turn has ended like this. A turn that
    completed, or that stayed incomplete and delivered words of its agent, has done its duty; a cancelled or failed one
    has passed on only what it delivered unchanged. `Pure.`"""
    if not owed:
        return ()
    speaks = any(isinstance(one.said, Heard) and not one.relayed for one in turn.deliveries)
    if status == "completed" or (status == "incomplete" and speaks):
        return tuple(one for one in owed if one.said not in turn.relay)
    passed_on = {one.said for one in turn.deliveries if one.relayed}
    return tuple(one for one in owed if one.said not in passed_on)


def may_show_text(policy: Policy) -> bool:
    """Whether the text that ends a turn reaches a user who has received nothing else in the turn. `Pure.`"""
    return policy.text != "thought" or policy.silent == "fallback"


def spoken_and_delivered(turn: TurnRecord) -> tuple[Said, ...]:
    """What was said by tool and delivered to the user, in order. `Pure.`"""
    if not (said := turn.said):
        return ()
    spoken = {spoken.said for spoken in said}
    return tuple(delivered.said for delivered in turn.deliveries if delivered.said in spoken)


def _chosen(turn: TurnRecord, policy: Policy) -> tuple[Spoken, ...]:
    """Of the speech for the end of the turn, what reaches the user."""
    if not (said := turn.said):
        return ()
    waiting = tuple(spoken for spoken in said if not spoken.now)
    return waiting[-1:] if policy.speech.keep == "last" else waiting


def _shows_text(turn: TurnRecord, context: Context, *, is_silent: bool, failed: bool) -> bool:
    """Whether the text that ends the turn is delivered: the agent must have a user."""
    if context.role != "foreground":
        return False
    rule = text_rule(context, speaks=turn.speaks)
    return failed or rule == "reply" or (is_silent and rule == "fallback")


def _passed_on(turn: TurnRecord, own: Sequence[Said], policy: Policy) -> Outstanding:
    """The messages to pass on, if the turn delivered nothing in the agent's own words. A sentence of the machine, at a
    limit for example, does not tell the user what the message says."""
    if not (relay := turn.relay):
        return ()
    delivered_texts = (*(delivered.said for delivered in turn.deliveries), *own)
    speaks = any(isinstance(said, Heard) for said in delivered_texts)
    passes_on = not speaks and policy.relay == "nudge_then_deliver"
    return tuple((message, True) for message in relay) if passes_on else ()


def text_of_delivery(content: str, policy: Policy, *, relayed: bool) -> str:
    """The text as the user receives it. A message that is relayed from another agent is passed on unchanged: no line of
    it is a part of this model's tool protocol. `Pure.`"""
    return content if relayed else text_of_reply(content, policy)


def text_of_reply(content: str, policy: Policy) -> str:
    """The text without the lines that begin with the policy's marker. A marker inside a line stays, and so does a line
    that begins with a longer word. `Pure.`"""
    marker = policy.marker
    if not marker or marker not in content:
        return content
    word_ends = r"\b" if marker[-1].isalnum() else ""
    begins = re.compile(rf"\s*{re.escape(marker)}{word_ends}")
    return "".join(line for line in content.splitlines(keepends=True) if not begins.match(line))


def owes_answer(turn: TurnRecord, context: Context) -> bool:
    """Whether a user waits for what the turn says. Nobody does if the agent has no user, or if another agent began the
    turn and no message of it must be passed on. `Pure.`"""
    is_left_to_prompt = context.policy.relay == "prompt_only"
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
    return has_said and text_rule(context, speaks=turn.speaks) == "fallback"


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
