"""Rows of every busy state, and of `Failed`: messages enter and leave the inbox."""

from __future__ import annotations

from ..context import Context
from ..events import AgentMessage, MessageWithdrawn, UserMessage, WakeUp
from ..state import Busy, State
from ..states import Failed
from ..step_builder import StepBuilder
from ..values.inbox import Waiting
from ..values.part import make_part
from ..values.revision import AGENTS


def keep_message(step: StepBuilder[Busy], event: UserMessage | AgentMessage, context: Context) -> Busy:
    """The message waits in the inbox: for the next turn, or, steered, for the next request of this turn."""
    return step.same(inbox=(*step.inbox, waiting_for(step, event, context)))


def waiting_for(step: StepBuilder[State], event: UserMessage | AgentMessage | WakeUp, context: Context) -> Waiting:
    """The entry of this message in the inbox. `Pure.`"""
    if isinstance(event, UserMessage):
        steer = (event.when_busy or context.policy.when_busy) == "steer"
        return make_part(Waiting, {"event_id": event.event_id, "seq": step.seq, "steer": steer})
    if isinstance(event, WakeUp):
        return Waiting(event_id=event.event_id, seq=step.seq, audience=event.audience, scheduled=True)
    origin = event.origin if context.revision >= AGENTS else ""
    return Waiting(event_id=event.event_id, seq=step.seq, audience=event.audience, silent=event.silent, origin=origin)


def withdraw_message(step: StepBuilder[Busy | Failed], event: MessageWithdrawn, context: Context) -> Busy | Failed:
    """The message leaves the inbox and will not be answered."""
    step.withdrawn = (event.message_id,)
    return step.same(inbox=tuple(waiting for waiting in step.inbox if waiting.event_id != event.message_id))
