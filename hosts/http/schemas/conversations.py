"""Conversations: how one is created, changed and shown."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from ....engine.projections.updates.schema import state_model
from ....states.policy.roles import Role
from .body import Answer, Body
from .described import DescribedBy
from .rules import GivenPolicy, Preset

StateJson = Annotated[dict[str, Any], DescribedBy(state_model())]
"""A state: its type, and what it tells."""


class NewConversation(Body):
    """A conversation to create. With an `id` of the client's own it is created once, however often this is sent."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")] | None = None
    system: str = ""
    model: str | None = None
    tools: list[str] | None = None
    preset: Preset | None = None
    policy: GivenPolicy | None = None
    messages: list[dict[str, Any]] | None = None
    owner: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    role: Role = "foreground"
    works_for: str | None = None


class ShownConversation(Answer):
    """A conversation as it is now."""

    id: str
    title: str | None
    owner: str | None
    metadata: dict[str, Any]
    role: Role
    parent: str | None
    works_for: str | None
    profile: str
    tools: list[str] | None
    policy: dict[str, Any]
    state: StateJson


class ListedConversation(Answer):
    """A conversation in a list. `seq` is the number of its newest step; `state` the type of its state."""

    id: str
    title: str
    owner: str | None
    metadata: dict[str, Any]
    role: Role
    parent: str | None
    works_for: str | None
    state: str
    busy: bool
    updated_at: AwareDatetime
    wakes_at: AwareDatetime | None
    seq: int


class ConversationPage(Answer):
    """A page of conversations, the one that changed last first. `next` is the `before` of the next page, or null."""

    conversations: list[ListedConversation]
    next: str | None
