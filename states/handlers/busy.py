"""Out of any busy state, and `Failed`: messages come and go without moving the conversation."""

from __future__ import annotations

from ..context import Context
from ..events import AgentMessage, MessageWithdrawn, UserMessage
from ..states import Busy, Failed, State
from ..step_builder import StepBuilder
from ..values.inbox import Waiting


def keep_message(draft: StepBuilder[Busy], event: UserMessage | AgentMessage, context: Context) -> Busy:
    """The message waits: for the next turn, or, steered, for the next request of this one."""
    return draft.same(inbox=(*draft.inbox, waiting_for(draft, event, context)))


def waiting_for(draft: StepBuilder[State], event: UserMessage | AgentMessage, context: Context) -> Waiting:
    """The message, as it stands in the inbox."""
    if isinstance(event, AgentMessage):
        return Waiting(event_id=event.event_id, seq=draft.seq, audience=event.audience, silent=event.silent)
    steer = (event.when_busy or context.policy.when_busy) == "steer"
    return Waiting(event_id=event.event_id, seq=draft.seq, steer=steer)


def withdraw_message(draft: StepBuilder[Busy | Failed], event: MessageWithdrawn, context: Context) -> Busy | Failed:
    """The message will never enter (case P37)."""
    draft.withdrawn = (event.message_id,)
    return draft.same(inbox=tuple(waiting for waiting in draft.inbox if waiting.event_id != event.message_id))
