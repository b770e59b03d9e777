"""What a new conversation is made of: its first event, from what the application has chosen."""

from __future__ import annotations

from datetime import datetime

from ...states.events import Opened
from ...states.policy.policy import Policy
from ..requests import make
from .choices import Choices


def opening_of(conversation_id: str, at: datetime, choices: Choices, *, policy: Policy, system: str) -> Opened:
    """Return the first event of a conversation. Raises `InvalidInput` for what such an event cannot hold."""
    return make(Opened, event_id=f"opened-{conversation_id}", at=at, system=system, policy=choices.rules(policy))
