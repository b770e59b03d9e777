"""Guards about messages that arrive during a turn or wait in the inbox."""

from __future__ import annotations

from ..context import Context
from ..events import AgentMessage, Event, MessageWithdrawn, UserMessage
from ..state import Busy, State
from ..states import Failed
from ..step_builder import StepBuilder
from ..values.inbox import MAX_INBOX
from ..values.revision import KEEPS_RELAYS
from .crashes import is_imported


def may_wait(step: StepBuilder[Busy], event: UserMessage, context: Context) -> bool:
    """The message, or else the policy, says that it may wait, and the inbox has room."""
    return (event.when_busy or context.policy.when_busy) != "refuse" and len(step.inbox) < MAX_INBOX


def has_room(step: StepBuilder[Busy], event: AgentMessage, context: Context) -> bool:
    """The inbox is not full."""
    return len(step.inbox) < MAX_INBOX


def is_silent(step: StepBuilder[State], event: AgentMessage, context: Context) -> bool:
    """The message starts no turn."""
    return event.silent


def still_waits(step: StepBuilder[Busy | Failed], event: MessageWithdrawn, context: Context) -> bool:
    """The message is still in the inbox."""
    return any(waiting.event_id == event.message_id for waiting in step.inbox)


def keeps_waiting(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox of an imported conversation holds a message that would start a turn."""
    return is_imported(step, event, context) and something_waits(step, event, context)


def something_waits(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox holds a message that starts a turn."""
    return any(not waiting.silent for waiting in step.inbox)


def goes_on_after_failure(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox holds a message that starts a turn, and the log began when such a message no longer waited for a person
    after a failure."""
    may_go_on = context.revision >= KEEPS_RELAYS and not is_imported(step, event, context)
    return may_go_on and something_waits(step, event, context)
