"""A conversation in a list, without its steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from ...states.roles import Role
from ...states.states import State
from .codec import from_microseconds, to_microseconds
from .conversation_record import ConversationRecord
from .details import Details
from .metadata import Metadata
from .origin import Origin


@dataclass(frozen=True)
class Summary:
    """A conversation in a list: the literal of its state, whether it waits for work, when it changed last, where it was
    copied from, whom it belongs to, its title, and what its application noted about it.

    `title` is the one that was given, else the first message of a user, or the task of a
    sub-agent, cut to a line; it is empty before there is one.
    `role` says whether it has a user, works for another conversation (`works_for`, if it names one), or was started by
    a turn of another one (`parent`). `wakes_at` is its next scheduled wake-up. The ids may be those of conversations
    that have been deleted. `seq` is the number of its newest step.
    """

    id: str
    state: str
    busy: bool
    updated_at: datetime
    origin: Origin | None = None
    owner: str | None = None
    title: str = ""
    metadata: Metadata = field(default_factory=dict, hash=False)
    role: Role = "foreground"
    parent: str | None = None
    works_for: str | None = None
    wakes_at: datetime | None = None
    seq: int = 0

    @property
    def cursor(self) -> str:
        """The `before` of the page that follows this conversation: its place, which stays although it is deleted."""
        return Place(to_microseconds(self.updated_at), self.id).cursor


@dataclass(frozen=True)
class Place:
    """A place in a list: behind the conversation that had this id and changed at this moment, in microseconds."""

    updated_at: int
    conversation_id: str

    @property
    def cursor(self) -> str:
        """The text that `place_of` reads."""
        return f"@{self.updated_at}.{self.conversation_id}"


def place_of(before: str) -> Place | None:
    """Return the place that a cursor names, None for the id of a conversation, which never begins with "@". `Pure.`"""
    at, _, conversation_id = before.removeprefix("@").partition(".")
    if not before.startswith("@") or re.fullmatch(r"-?[0-9]{1,18}", at) is None or not conversation_id:
        return None
    return Place(int(at), conversation_id)


def summary_of(record: ConversationRecord, details: Details) -> Summary:
    """Return what a list shows of a conversation, for a store that has its record and its details at hand. `Pure.`"""
    head = record.head
    return Summary(
        id=record.id,
        state=head.state_type,
        busy=head.waits,
        updated_at=from_microseconds(head.updated_at),
        origin=record.origin,
        owner=record.owner,
        title=details.title,
        metadata=details.metadata,
        role=details.role,
        parent=details.parent,
        works_for=details.works_for,
        wakes_at=None if head.wakes_at is None else from_microseconds(head.wakes_at),
        seq=head.seq,
    )


def summary_in_state(conversation_id: str, state: State, since: datetime, details: Details) -> Summary:
    """Return what a list shows of a conversation that has been in this state `since` this moment and is no copy.
    `Pure.`"""
    return Summary(
        id=conversation_id,
        state=state.type,
        busy=state.ends_with_process,
        updated_at=since,
        owner=details.owner,
        title=details.title,
        metadata=details.metadata,
        role=details.role,
        parent=details.parent,
        works_for=details.works_for,
        wakes_at=state.book.wake,
        seq=state.book.seq,
    )
