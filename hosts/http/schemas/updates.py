"""The events of the two streams: updates of one conversation, and updates of all conversations of an owner."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union, get_args

from pydantic import AwareDatetime, BaseModel, Field, RootModel, create_model

from ....engine.update_schema import data_model, update_model
from ....engine.updates import Update
from ....states.roles import Role
from ..streams.events import EndReason
from .body import Answer
from .described import EventsOf


class TreeConversation(Answer):
    """A conversation of a tree of agents. `state` is the type of its state, and `seq` the number of its newest step."""

    id: str
    role: Role
    parent: str | None
    works_for: str | None
    title: str
    owner: str | None
    state: str
    busy: bool
    updated_at: AwareDatetime
    wakes_at: AwareDatetime | None
    seq: int


class TreeSnapshotData(Answer):
    """The conversations as they are now, the one that changed last first. It replaces everything before it."""

    conversations: list[TreeConversation]


class ConversationOpenedData(Answer):
    """A new conversation has begun."""

    conversation: TreeConversation


class NoData(Answer):
    """An empty object."""


class TreeSnapshot(Answer):
    """The first event of the stream of a tree, and again where its reader has fallen far behind."""

    conversation_id: None
    type: Literal["tree_snapshot"]
    data: TreeSnapshotData


class ConversationOpened(Answer):
    """A new conversation has begun."""

    conversation_id: str
    type: Literal["conversation_opened"]
    data: ConversationOpenedData


class ConversationDeleted(Answer):
    """The conversation was deleted; it has no more updates."""

    conversation_id: str
    type: Literal["conversation_deleted"]
    data: NoData


def _in_tree(kind: Any) -> type[BaseModel]:
    """An update of one conversation, as the stream of a tree has it."""
    fields: dict[str, Any] = {
        "conversation_id": (str, ...),
        "type": (Literal[kind.type], ...),
        "data": (data_model(kind), ...),
    }
    return create_model(f"{kind.__name__}OfTree", __doc__=f"The update `{kind.type}` of a conversation.", **fields)


_TREE: tuple[Any, ...] = (TreeSnapshot, ConversationOpened, ConversationDeleted, *map(_in_tree, get_args(Update)))
_TREE_UPDATE: Any = Annotated[Union[_TREE], Field(discriminator="type")]  # noqa: UP007


def _named(name: str, union: Any, description: str) -> Any:
    """A union under a name of its own in OpenAPI."""
    base: Any = RootModel.__class_getitem__(union)
    return create_model(name, __base__=base, __doc__=description)


UPDATE = _named("Update", update_model(), "An update of a conversation; `type` tells what it is.")
TREE_UPDATE = _named("TreeUpdate", _TREE_UPDATE, "An update of a conversation of a tree of agents.")


class EndData(Answer):
    """Why the stream ended. Unless the conversation is closed or deleted, a client follows it again."""

    reason: EndReason


class End(Answer):
    """The last event of a stream, where it can still be sent."""

    type: Literal["end"]
    id: None
    data: EndData


UpdateEvents = Annotated[str, EventsOf(UPDATE | End)]
"""A stream of updates of one conversation."""

TreeEvents = Annotated[str, EventsOf(TREE_UPDATE | End)]
"""A stream of updates of many conversations."""
