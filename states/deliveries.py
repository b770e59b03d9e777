"""What of a turn reaches the user: by the rules of the policy, in the order in which it was said.

What was said for now is handed over as it is said; what the end of the turn hands over is settled here, once, for the
end itself and for the check that comes before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .context import Context
from .messages import Heard, Said
from .policy import Policy
from .turn import Spoken, TurnEnded, TurnRecord


def outstanding(turn: TurnRecord, ending: TurnEnded, context: Context) -> tuple[list[Said], Sequence[Heard]]:
    """What a turn has yet to hand over when it ends like this: words of its own, and then messages of other agents that
    it passes on as they are. A turn that failed delivers nothing but its error (cases S8, S21). `Pure.`"""
    own: list[Said] = [] if ending.status == "failed" else [spoken.said for spoken in _chosen(turn, context.policy)]
    text, is_silent = ending.final_content, not (turn.deliveries or own)
    if text is not None and _shows_text(ending, context, is_silent=is_silent):
        own.append(text)
    return own, turn.relay if must_relay(turn, context.policy, own) else ()


def received(turn: TurnRecord, context: Context) -> tuple[Said, ...]:
    """What the user has received of a turn in the end, if it ends now and its claim holds. An agent without a user
    hands its result to another agent. `Pure.`"""
    result = turn.final or turn.claim
    own, relayed = outstanding(turn, TurnEnded(turn=turn.number, status="completed", final_content=result), context)
    delivered = (*(delivery.said for delivery in turn.deliveries), *own, *relayed)
    has_user = context.role == "foreground"
    return delivered if delivered or has_user or result is None else (result,)


def _chosen(turn: TurnRecord, policy: Policy) -> tuple[Spoken, ...]:
    """Of what was said for the end of the turn, what reaches the user (case S3). `Pure.`"""
    waiting = tuple(spoken for spoken in turn.said if not spoken.now)
    return waiting[-1:] if policy.speech.keep == "last" else waiting


def _shows_text(ending: TurnEnded, context: Context, *, is_silent: bool) -> bool:
    """Whether the text that ends the turn is for the user (cases S2, B1, B6), if the agent has one (D12). `Pure.`"""
    policy = context.policy
    if context.role != "foreground":
        return False
    if ending.status == "failed" or policy.text == "reply":
        return True
    return is_silent and (policy.text == "fallback" or policy.silent == "fallback")


def must_relay(turn: TurnRecord, policy: Policy, own: Iterable[Said] = ()) -> bool:
    """Whether a message for the user has yet to reach them: the turn delivered no words of its agent, nor are there any
    in `own`, which comes next. A sentence of ours, at a limit say, does not tell the user what the message does
    (case D7). `Pure.`"""
    words = (*(delivered.said for delivered in turn.deliveries), *own)
    is_told = any(isinstance(said, Heard) for said in words)
    return bool(turn.relay) and not is_told and policy.relay == "nudge_then_deliver"


def spoken_and_received(turn: TurnRecord) -> tuple[Said, ...]:
    """What was said by tool and has reached the user, in order. `Pure.`"""
    if not turn.said:
        return ()
    spoken = {spoken.said for spoken in turn.said}
    return tuple(delivered.said for delivered in turn.deliveries if delivered.said in spoken)
