"""What a new conversation is made of: its first event, from what the application has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...states.events import Opened
from ...states.policy.policy import Policy
from ..requests import make
from .choices import Choices, GivenTools
from .given_history import GivenMessages, read_history


@dataclass(frozen=True, kw_only=True)
class ChosenOpening:
    """What an application chooses for a new conversation. `Engine.create` says what each choice means."""

    policy: Policy | None
    system: str
    model: str | None
    tools: GivenTools | None
    messages: GivenMessages | None
    owner: str | None
    title: str | None
    metadata: Mapping[str, Any] | None


async def opening_of(
    conversation_id: str, at: datetime, choices: Choices, default: Policy, chosen: ChosenOpening
) -> Opened:
    """Return the first event of a conversation, which has the rules `default` unless it chooses others. Raises
    `ConfigurationError` for what the engine does not have or cannot carry out, and `InvalidInput` for what such an
    event cannot hold."""
    history = await read_history(chosen.messages, chosen.system)
    names = choices.tools(chosen.tools)
    rules = choices.rules(default if chosen.policy is None else chosen.policy, names, chosen.model)
    return make(
        Opened,
        event_id=f"opened-{conversation_id}",
        at=at,
        system=history.system,
        policy=rules.policy,
        chose_models=rules.chose_models,
        chose_profiles=rules.chose_profiles,
        tools=names,
        owner=chosen.owner,
        title=chosen.title,
        metadata={} if chosen.metadata is None else chosen.metadata,
        messages=history.messages,
        repairs=history.repairs,
    )
