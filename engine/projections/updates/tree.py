"""Updates of many conversations: of all agents of an owner, or of everybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .update import Update

if TYPE_CHECKING:
    from ....persistence.summaries import Summary


@dataclass(frozen=True)
class TreeSnapshotUpdate:
    """The `conversations` as they are now, the one that moved last first. Whoever shows a tree replaces all that it has
    shown. `Summary.parent` and `works_for` tell which conversation an agent belongs to."""

    type: ClassVar[Literal["tree_snapshot"]] = "tree_snapshot"
    conversations: tuple[Summary, ...]

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {"conversations": [summary_data(summary) for summary in self.conversations]}


@dataclass(frozen=True)
class ConversationOpenedUpdate:
    """A new `conversation` has begun.

    Its title is empty where none was given and nothing was said yet, as for a sub-agent, whose task comes next, as its
    first message."""

    type: ClassVar[Literal["conversation_opened"]] = "conversation_opened"
    conversation: Summary

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {"conversation": summary_data(self.conversation)}


@dataclass(frozen=True)
class ConversationDeletedUpdate:
    """The conversation was deleted; it has no more updates."""

    type: ClassVar[Literal["conversation_deleted"]] = "conversation_deleted"

    @property
    def data(self) -> dict[str, Any]:
        """An empty object."""
        return {}


AnyTreeUpdate: TypeAlias = Update | TreeSnapshotUpdate | ConversationOpenedUpdate | ConversationDeletedUpdate
"""Something to show of a tree: what `Conversation.updates` shows of one conversation, and what concerns the tree."""


@dataclass(frozen=True)
class TreeUpdate:
    """An update of the conversation with this id. That of a snapshot of the tree is None."""

    conversation_id: str | None
    update: AnyTreeUpdate

    @property
    def data(self) -> dict[str, Any]:
        """The update as JSON, with the conversation and the type."""
        return {"conversation_id": self.conversation_id, "type": self.update.type, "data": self.update.data}


def summary_data(summary: Summary) -> Mapping[str, Any]:
    """Return a conversation of a tree as JSON. `Pure.`"""
    return {
        "id": summary.id,
        "role": summary.role,
        "parent": summary.parent,
        "works_for": summary.works_for,
        "title": summary.title,
        "owner": summary.owner,
        "state": summary.state,
        "busy": summary.busy,
        "updated_at": summary.updated_at.isoformat(),
        "wakes_at": None if summary.wakes_at is None else summary.wakes_at.isoformat(),
        "seq": summary.seq,
    }
