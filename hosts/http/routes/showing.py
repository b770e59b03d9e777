"""Conversations and turns as clients receive them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ....engine.conversation import Conversation
from ....engine.projections.turn import Turn
from ....engine.projections.updates.data import data_of
from ....engine.projections.updates.snapshot import SnapshotUpdate
from ..schemas.conversations import ListedConversation, ShownConversation

if TYPE_CHECKING:
    from ....persistence.records.summary import Summary


def listed(summary: Summary) -> ListedConversation:
    """Return a conversation of a list. `Pure.`"""
    return ListedConversation(
        id=summary.id,
        title=summary.title,
        owner=summary.owner,
        metadata=dict(summary.metadata),
        role=summary.role,
        parent=summary.parent,
        works_for=summary.works_for,
        state=summary.state,
        busy=summary.busy,
        updated_at=summary.updated_at,
        wakes_at=summary.wakes_at,
        seq=summary.seq,
    )


async def shown(conversation: Conversation) -> ShownConversation:
    """Return a conversation as it is now."""
    async with aclosing(conversation.updates()) as updates:
        first = await anext(updates)
    assert isinstance(first, SnapshotUpdate), "without an id, the updates begin with a snapshot"
    return ShownConversation(
        id=conversation.id,
        title=conversation.title,
        owner=conversation.owner,
        metadata=dict(conversation.metadata),
        role=conversation.role,
        parent=conversation.parent,
        works_for=conversation.works_for,
        profile=conversation.profile,
        tools=None if conversation.tools is None else list(conversation.tools),
        policy=conversation.policy.model_dump(mode="json"),
        state=first.state.data,
    )


def turn_json(turn: Turn) -> dict[str, Any]:
    """Return a turn as JSON. `Pure.`"""
    return {"status": turn.status, **data_of(turn)}
