"""A conversation in a list: its state, its title and its metadata, without its steps.

What a list shows of a conversation besides its head is its owner, its role among agents, its title, and the metadata of
the application. A title is given by the application, or made from the first message of a user. All of it follows from a
few events of the log. A store may keep it beside the log, to list conversations without reading logs, and can compute
it again at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, TypeAlias, get_args

from pydantic import AwareDatetime, Field, JsonValue

from ..states.errors import InvalidInput, UnknownConversation
from ..states.events import DetailsChanged, Event, MessageEdited, Opened, UserMessage
from ..states.header import Header
from ..states.roles import Role
from ..states.states import STATES, State
from ..states.step import LogEntry
from ..states.values.acts import MAX_ENTRIES, marks_of
from ..states.values.files import NOUNS, FileReference, file_of_part
from ..states.values.messages import HistoryMessage
from ..states.values.value import MAX_QUOTED, Block, adapter_of, encodable, shortened
from .codec import decode, decode_event, digest, from_microseconds, to_microseconds
from .errors import Damaged
from .records import ConversationRecord, DetailsRow, EventRow, Origin

Metadata: TypeAlias = Mapping[str, JsonValue]
"""What an application notes about a conversation: JSON values by their names."""


class Summary(Header):
    """A conversation in a list: its header, the literal of its state, whether it waits for work, when it changed last,
    and where it was copied from.

    `title` is the one that was given, else the first message of a user, or the task of a sub-agent, cut to a line; it
    is empty before there is one. `wakes_at` is its next scheduled wake-up. The ids may be those of conversations that
    have been deleted. `seq` is the number of its newest step.
    """

    id: str
    state: str
    busy: bool
    updated_at: AwareDatetime
    origin: Origin | None = None
    title: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)  # its bounds were checked when it was given
    wakes_at: AwareDatetime | None = None
    seq: int = 0

    def __hash__(self) -> int:
        return hash((self.id, self.updated_at, self.seq))

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


LONGEST_ID = 200
"""The longest id of a conversation or a request, in characters. The ids that the engine makes have 36."""


def checked_id(conversation_id: Any) -> str:
    """Return an id that a conversation may have. Raises `InvalidInput`."""
    if not isinstance(conversation_id, str):
        raise InvalidInput("The id of a conversation is a text.")
    if len(conversation_id) > LONGEST_ID or encodable(conversation_id) != conversation_id:
        raise InvalidInput("No conversation has such an id.")
    return conversation_id


@dataclass(frozen=True, kw_only=True)
class ConversationFilter:
    """Which conversations a list holds, and which page of them. What is None selects nothing.

    Of `metadata` a conversation must have all the given values under their names, compared as `json_identity` does: 1
    is neither "1" nor true. `state` is the literal of a state, such as `idle`. `parent` and `works_for` need not be ids
    of conversations that are stored. `limit` is the size of the page, and `before` says where it begins: the cursor of
    the last conversation of the page before, or its id.

    Raises `InvalidInput`, which says what cannot be selected by.
    """

    owner: str | None = None
    metadata: Metadata | None = field(default=None, hash=False)
    state: str | None = None
    limit: int | None = None
    before: str | None = None
    role: Role | None = None
    parent: str | None = None
    works_for: str | None = None

    def __post_init__(self) -> None:
        checked_owner(self.owner)
        if self.metadata is not None:
            object.__setattr__(self, "metadata", _checked_metadata(self.metadata))
        if self.state is not None and self.state not in _STATES:
            raise InvalidInput(f"The state that a list selects by is one of {', '.join(_STATES)}.")
        if self.limit is not None:
            object.__setattr__(self, "limit", _checked_limit(self.limit))
        if self.before is not None:
            _check_before(self.before)
        if self.role is not None and self.role not in get_args(Role):
            raise InvalidInput(f"The role that a list selects by is one of {', '.join(get_args(Role))}.")
        for conversation_id in (self.parent, self.works_for):
            if conversation_id is not None:
                checked_id(conversation_id)

    def selects(self, summary: Summary) -> bool:
        """Whether a list holds this conversation, on whatever page. `Pure.`"""
        wanted = {name: getattr(self, name) for name in ("owner", "state", "role", "parent", "works_for")}
        return all(value is None or getattr(summary, name) == value for name, value in wanted.items()) and all(
            name in summary.metadata and json_identity(summary.metadata[name]) == json_identity(value)
            for name, value in (self.metadata or {}).items()
        )

    def page_of(self, newest_first: Sequence[Summary]) -> tuple[Summary, ...]:
        """Return the page out of all conversations, for a store that has their summaries at hand. `Pure.` Raises
        `UnknownConversation` if the page begins behind the id of a conversation that is not among them."""
        following = newest_first if self.before is None else newest_first[_beginning(newest_first, self.before) :]
        return tuple(islice(filter(self.selects, following), self.limit))


def _beginning(newest_first: Sequence[Summary], before: str) -> int:
    place = place_of(before)
    ids = [summary.id for summary in newest_first]
    if place is None:
        if before not in ids:
            raise UnknownConversation(before)
        return ids.index(before) + 1
    moments = [to_microseconds(summary.updated_at) for summary in newest_first]
    newer = sum(at > place.updated_at for at in moments)
    of_moment = ids[newer : newer + moments.count(place.updated_at)]
    return newer + (of_moment.index(place.conversation_id) + 1 if place.conversation_id in of_moment else 0)


def checked_owner(owner: Any) -> str | None:
    """Return an owner that conversations may have, or None. Raises `InvalidInput`."""
    if owner is not None and not (isinstance(owner, str) and encodable(owner) == owner):
        raise InvalidInput("The owner of conversations is a text.")
    return owner


_LARGEST_PAGE = 2**63 - 1
"""The most conversations of a page: no storage, and no memory, holds more, and databases have no larger number."""


def _checked_limit(limit: Any) -> int:
    if type(limit) is not int or limit < 0:
        raise InvalidInput("The limit of a list is a whole number, not below 0.")
    return min(limit, _LARGEST_PAGE)


def _checked_metadata(metadata: Any) -> Metadata:
    if not isinstance(metadata, Mapping):
        raise InvalidInput("The metadata that a list selects by is a dict of JSON values.")
    if len(metadata) > MAX_ENTRIES:
        raise InvalidInput(f"A list selects by at most {MAX_ENTRIES} values of metadata.")
    return {name: _checked_value(name, value) for name, value in metadata.items()}


def _checked_value(name: Any, value: Any) -> JsonValue:
    try:
        checked: dict[str, JsonValue] = adapter_of(Block).validate_python({name: value})
    except (ValueError, RecursionError):
        where = shortened(f"metadata[{name!r}]", MAX_QUOTED)
        raise InvalidInput(f"A list cannot select by {where}: a name is a text, and a value is JSON.") from None
    return checked[name]


_STATES = tuple(state.model_fields["type"].default for state in STATES)


def _check_before(before: Any) -> None:
    """Raise `InvalidInput` for what is neither the id of a conversation nor a cursor, which holds one."""
    is_cursor = isinstance(before, str) and before.startswith("@")
    place = place_of(before) if is_cursor else None
    if is_cursor and place is None:
        raise InvalidInput("The page of a list begins behind a conversation, or at its cursor.")
    checked_id(before if place is None else place.conversation_id)


EVERYTHING = ConversationFilter()
"""All conversations."""


def summary_of(record: ConversationRecord, details: Details) -> Summary:
    """Return what a list shows of a conversation, for a store that has its record and its details at hand. `Pure.`"""
    head = record.head
    return Summary.model_construct(
        **details.shown | {"owner": record.owner},
        id=record.id,
        state=head.state_type,
        busy=head.waits,
        updated_at=from_microseconds(head.updated_at),
        origin=record.origin,
        wakes_at=None if head.wakes_at is None else from_microseconds(head.wakes_at),
        seq=head.seq,
    )


def summary_in_state(conversation_id: str, state: State, since: datetime, details: Details) -> Summary:
    """Return what a list shows of a conversation that has been in this state `since` this moment and is no copy.
    `Pure.`"""
    return Summary.model_construct(
        **details.shown,
        id=conversation_id,
        state=state.type,
        busy=state.ends_with_process,
        updated_at=since,
        wakes_at=state.book.wake,
        seq=state.book.seq,
    )


_MESSAGES = {kind.model_fields["type"].default for kind in (UserMessage, MessageEdited)}
_CHANGES = _MESSAGES | {kind.model_fields["type"].default for kind in (Opened, DetailsChanged)}


class Details(Header):
    """The header of a conversation as its steps say, and its title where none was given: `first_message` is the first
    message of a user on one line, None before there is one."""

    first_message: str | None = None

    @property
    def shown_title(self) -> str:
        """The title that a list shows; empty as long as nobody chose one and no user said anything. `Pure.`"""
        return given_title(self.title) or self.first_message or ""

    @property
    def shown(self) -> dict[str, Any]:
        """The header as a list shows it. `Pure.`"""
        return {**self.header_fields, "title": self.shown_title}

    def after(self, event: Event) -> Details:
        """Return the details after this event. `Pure.`"""
        match event:
            case Opened():
                return Details.model_construct(**event.header_fields, first_message=first_title(event.messages))
            case UserMessage() if self.first_message is None:
                return self.replace(first_message=message_title(event.text, event.files))
            case DetailsChanged():
                return self.with_details(event.title, event.metadata)
            case _:
                return self


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
        if row.type in _CHANGES and not (row.type in _MESSAGES and details.first_message is not None):
            with suppress(Damaged):
                details = details.after(decode(row).event)
    return details


HEADER_COLUMNS = tuple(name for name in Header.model_fields if name != "owner")
"""The columns in which a store keeps a header, by the names of its fields. Each holds a text, or NULL for the default
of the field; a value that is no text stands there as JSON. The owner has a column beside them: lists begin there."""

_DEFAULTS = {name: Header.model_fields[name].get_default(call_default_factory=True) for name in HEADER_COLUMNS}


def header_column(name: str, value: Any) -> str | None:
    """Return what the column of this field holds. `Pure.`"""
    if value == _DEFAULTS[name]:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_header(columns: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a header that are no defaults, out of its columns. `Pure.` Raises ValueError for what is no
    JSON; the values are not validated."""
    stored = {name: text for name, text in zip(HEADER_COLUMNS, columns, strict=True) if text is not None}
    return {
        name: text if isinstance(_DEFAULTS[name], str | None) else json.loads(text) for name, text in stored.items()
    }


def details_row(details: Details) -> DetailsRow:
    """Return the row that a store keeps of these details. `Pure.`"""
    header = {**details.header_fields, "title": given_title(details.title)}
    columns = tuple(header_column(name, header[name]) for name in HEADER_COLUMNS)
    return DetailsRow(columns, details.first_message, metadata_entries(details.metadata))


def is_of_host(first: EventRow) -> bool:
    """Return whether a host made the conversation that begins with this step for itself. `Pure.` Raises `Damaged`."""
    event = decode_event(first)
    return isinstance(event, Opened) and bool(marks_of(event.metadata))


TITLE = 60
"""The most characters of a title that is made from a message. Chosen so that it fits a line of a list."""

_WORD = re.compile(rf"\S{{1,{TITLE + 1}}}")


def given_title(title: str | None) -> str | None:
    """Return a title on one line, or None if it is blank: then the conversation has the title of its first message.
    `Pure.`"""
    return None if title is None else " ".join(title.split()) or None


def message_title(text: str, files: Sequence[FileReference]) -> str | None:
    """Return the title of a conversation that begins with this message: the message on one line, cut to `TITLE`
    characters. `Pure.`

    Of a message of files alone the name of the first one that has a name, else how many they are, such as `3 images`.
    None if the message is blank.
    """
    line = " ".join(word[0] for word in islice(_WORD.finditer(text), TITLE))
    if line or not files:
        return shortened(line, TITLE) if line else None
    if named := next((file.name for file in files if file.name), None):
        return shortened(named, TITLE)
    kinds = {file.kind for file in files}
    noun = NOUNS[kinds.pop()] if len(kinds) == 1 else "file"
    return f"1 {noun}" if len(files) == 1 else f"{len(files)} {noun}s"


def first_title(messages: Iterable[HistoryMessage]) -> str | None:
    """Return the title of a conversation that continues this history: that of the first message of a user which is not
    blank, or None. `Pure.`"""
    titles = (_history_title(message) for message in messages if message.role == "user")
    return next((title for title in titles if title is not None), None)


def _history_title(message: HistoryMessage) -> str | None:
    match message.given.get("content"):
        case str(text):
            return message_title(text, ())
        case list(parts):
            objects = [part for part in parts if isinstance(part, dict)]
            texts = (text for text in (part.get("text") for part in objects) if isinstance(text, str))
            files = [file for file in map(file_of_part, objects) if file is not None]
            return message_title("\n".join(texts), files)
        case _:
            return None


def metadata_entries(metadata: Metadata) -> tuple[bytes, ...]:
    """Return the digests of all values of metadata, sorted. `Pure.`"""
    return tuple(sorted(metadata_entry(name, value) for name, value in metadata.items()))


def metadata_entry(name: str, value: JsonValue) -> bytes:
    """Return a digest by which a store can find the conversations that have this value under this name. `Pure.`"""
    return digest(json_identity([name, value]))


def json_identity(value: JsonValue) -> str:
    """Return a text that is the same for the same JSON value only. `Pure.`

    1, "1" and true are three values. 1 and 1.0 are the same number, since programs write either for the other. The
    order of the members of an object does not count.
    """
    return json.dumps(_with_exact_numbers(value), sort_keys=True, separators=(",", ":"))


def _with_exact_numbers(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_exact_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_exact_numbers(each) for each in value]
    return value
