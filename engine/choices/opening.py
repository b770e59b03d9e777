"""What a new conversation is made of: its first event, from what the application has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...states.events import Opened
from ...states.openai_format.repair import RepairedHistory
from ...states.policy.policy import Policy
from ..requests import make
from .choices import Choices, GivenTools


def opening_of(
    conversation_id: str,
    at: datetime,
    choices: Choices,
    *,
    policy: Policy,
    history: RepairedHistory,
    model: str | None,
    tools: GivenTools | None,
    owner: str | None,
    title: str | None,
    metadata: Mapping[str, Any] | None,
) -> Opened:
    """Return the first event of a conversation. Raises `ConfigurationError` for what the engine does not have or cannot
    carry out, and `InvalidInput` for what such an event cannot hold."""
    names = choices.tools(tools)
    rules = choices.rules(policy, names, model)
    return make(
        Opened,
        event_id=f"opened-{conversation_id}",
        at=at,
        system=history.system,
        policy=rules.policy,
        chose_models=rules.chose_models,
        chose_profiles=rules.chose_profiles,
        tools=names,
        owner=owner,
        title=title,
        metadata={} if metadata is None else metadata,
        messages=history.messages,
        repairs=history.repairs,
    )
