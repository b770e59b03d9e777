"""What a new conversation is made of: its first event, from what the application has chosen."""

from __future__ import annotations

from datetime import datetime

from ...states.events import Opened
from ...states.openai_format.repair import RepairedHistory
from ...states.policy.policy import Policy
from ..requests import make
from .choices import Choices


def opening_of(
    conversation_id: str, at: datetime, choices: Choices, *, policy: Policy, history: RepairedHistory
) -> Opened:
    """Return the first event of a conversation. Raises `InvalidInput` for what such an event cannot hold."""
    return make(
        Opened,
        event_id=f"opened-{conversation_id}",
        at=at,
        system=history.system,
        policy=choices.rules(policy),
        messages=history.messages,
        repairs=history.repairs,
    )
