"""What of a turn reaches the user: by the rules of the policy, in the order in which it was said.

What was said for now is handed over as it is said; what the end of the turn hands over is settled here, once, for the
end itself and for the check that comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..context import Context
from ..policy.policy import Policy
from ..values.messages import Heard, Said
from ..values.turn import Spoken, TurnRecord

Outstanding = tuple[tuple[Said, bool], ...]
"""What a turn has yet to hand over, in order; of each, whether it is another agent's message, passed on as it is."""


def outstanding(turn: TurnRecord, text: Said | None, context: Context, *, failed: bool = False) -> Outstanding:
    """What a turn has yet to hand over if it ends with this text: words of its own, and then the messages for the user
    that it was to pass on. A turn that failed delivers nothing but its error. `Pure.`"""
    own: list[Said] = [] if failed else [spoken.said for spoken in _chosen(turn, context.policy)]
    is_silent = not (turn.deliveries or own)
    if text is not None and _shows_text(context, is_silent=is_silent, failed=failed):
        own.append(text)
    return *((said, False) for said in own), *_passed_on(turn, own, context.policy)


def deliverable(turn: TurnRecord, context: Context) -> tuple[Said, ...]:
    """All that the user has by the end of a turn that ends with its claim. An agent without a user is checked by its
    result besides: nobody else would see it but another agent. `Pure.`"""
    assert turn.claim is not None, "only a claim is checked"
    result = turn.final or turn.claim
    delivered = tuple(delivery.said for delivery in turn.deliveries)
    due = tuple(said for said, _ in outstanding(turn, result, context))
    shown = () if context.role == "foreground" else (result,)
    return *delivered, *due, *shown


def may_show_text(policy: Policy) -> bool:
    """Whether the text that ends a turn reaches a user who has received nothing else. `Pure.`"""
    return policy.text == "reply" or "fallback" in (policy.text, policy.silent)


def spoken_and_delivered(turn: TurnRecord) -> tuple[Said, ...]:
    """What was said by tool and has reached the user, in order. `Pure.`"""
    if not turn.said:
        return ()
    spoken = {spoken.said for spoken in turn.said}
    return tuple(delivered.said for delivered in turn.deliveries if delivered.said in spoken)


def _chosen(turn: TurnRecord, policy: Policy) -> tuple[Spoken, ...]:
    """Of what was said for the end of the turn, what reaches the user."""
    waiting = tuple(spoken for spoken in turn.said if not spoken.now)
    return waiting[-1:] if policy.speech.keep == "last" else waiting


def _shows_text(context: Context, *, is_silent: bool, failed: bool) -> bool:
    """Whether the text that ends the turn is for the user, if the agent has one."""
    policy = context.policy
    shows = failed or policy.text == "reply" or (is_silent and may_show_text(policy))
    return context.role == "foreground" and shows


def _passed_on(turn: TurnRecord, own: Sequence[Said], policy: Policy) -> Outstanding:
    """The messages for the user, if no words of their agent come before them. A sentence of the machine, at a limit
    say, does not tell the user what the message does."""
    told = (*(delivered.said for delivered in turn.deliveries), *own)
    is_told = any(isinstance(said, Heard) for said in told)
    passes_on = not is_told and policy.relay == "nudge_then_deliver"
    return tuple((message, True) for message in turn.relay) if passes_on else ()
