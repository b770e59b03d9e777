"""What of a turn reaches the user, by the rules of the policy, in the order in which it was said.

Speech for now is delivered when it is said. What the end of a turn delivers is decided here, both for the end itself
and for the check of a claim before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..context import Context
from ..policy.policy import Policy
from ..values.inbox import Owed
from ..values.messages import Heard, Said
from ..values.revision import KNOWS_WHO_SPEAKS
from ..values.turn import EndedStatus, Spoken, TurnRecord

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
        return "fallback" if speaks and context.revision >= KNOWS_WHO_SPEAKS else "reply"
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
