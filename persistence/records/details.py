"""What a list shows of a conversation besides its head: its owner, its role among agents, its title, and the metadata
of the application.

All of it follows from a few events of the log. A store may keep it beside the log, to list conversations without
reading logs, and can compute it again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...states.events import DetailsChanged, Event, Opened, UserMessage
from ...states.roles import Role
from ...states.step import LogEntry
from ...states.values.acts import marks_of
from ..errors import Damaged
from .codec import decode, decode_event
from .metadata import Metadata, json_identity, metadata_columns
from .rows import DetailsRow, EventRow
from .titles import first_title, given_title, message_title

_CHANGES = {kind.model_fields["type"].default for kind in (Opened, UserMessage, DetailsChanged)}
_MESSAGE = UserMessage.model_fields["type"].default


@dataclass(frozen=True)
class Details:
    """The owner, the title and the metadata of a conversation, and its role among agents.

    `given_title` is the title that the application chose, None if it chose none. `first_message` is what the title is
    otherwise: the first message of a user on one line, None before there is one. `role`, `parent` and `works_for` are
    those of `Opened`.
    """

    owner: str | None = None
    given_title: str | None = None
    first_message: str | None = None
    metadata: Metadata = field(default_factory=dict, hash=False)
    role: Role = "foreground"
    parent: str | None = None
    works_for: str | None = None

    @property
    def title(self) -> str:
        """The title that a list shows; empty as long as nobody chose one and no user said anything."""
        return self.given_title or self.first_message or ""

    def after(self, event: Event) -> Details:
        """Return the details after this event. `Pure.`"""
        match event:
            case Opened():
                return Details(
                    owner=event.owner,
                    given_title=given_title(event.title),
                    first_message=first_title(event.messages),
                    metadata=event.metadata,
                    role=event.role,
                    parent=event.parent,
                    works_for=event.works_for,
                )
            case UserMessage() if self.first_message is None:
                return replace(self, first_message=message_title(event.text, len(event.images)))
            case DetailsChanged():
                return replace(
                    self,
                    given_title=self.given_title if event.title is None else given_title(event.title),
                    metadata=self.metadata if event.metadata is None else event.metadata,
                )
            case _:
                return self

    def has(self, metadata: Metadata) -> bool:
        """Whether the metadata has all these values under these names, compared as `json_identity` does. `Pure.`"""
        return all(
            name in self.metadata and json_identity(self.metadata[name]) == json_identity(value)
            for name, value in metadata.items()
        )


def details_of(entries: Iterable[LogEntry]) -> Details:
    """Return the details of a conversation with these steps. `Pure.`"""
    details = Details()
    for entry in entries:
        details = details.after(entry.event)
    return details


def details_of_rows(rows: Iterable[EventRow]) -> Details:
    """Return the details of a conversation with these rows, of which only a few are decoded. A row that cannot be read
    is passed over. `Pure.`"""
    details = Details()
    for row in rows:
        if row.type in _CHANGES and not (row.type == _MESSAGE and details.first_message is not None):
            with suppress(Damaged):
                details = details.after(decode(row).event)
    return details


def details_row(details: Details) -> DetailsRow:
    """Return the row that a store keeps of these details. `Pure.`"""
    text, entries = metadata_columns(details.metadata)
    role = None if details.role == "foreground" else details.role
    agent = (role, details.parent, details.works_for)
    return DetailsRow(details.given_title, details.first_message, text, entries, *agent)


def is_of_host(first: EventRow) -> bool:
    """Return whether a host made the conversation that begins with this step for itself. `Pure.` Raises `Damaged`."""
    event = decode_event(first)
    return isinstance(event, Opened) and bool(marks_of(event.metadata))
