"""Reads an export without trusting it.

A file may come from anywhere. So every line is checked against the format, every step against its digests, and the end
against the number of conversations. The result is what was exported once, or an error that names the line.

The digests of a log cover how it was written, while a parser returns only what a text means. So the text of each member
of an object is kept, character by character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, BinaryIO, NamedTuple, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ...states.effects import AwaitedEffect
from ...states.events import DetailsChanged, Opened
from ...states.states import State, pending
from ...states.values.acts import MARK, marks_of
from ...states.values.value import Text
from ..codec import GENESIS, check_link, decode, decode_state, digest, head_row, to_microseconds, without_given_messages
from ..errors import Damaged, NotAnExport
from ..records import ConversationRecord, EventRow, HeadRow, Origin
from ..summaries import LONGEST_ID
from .export import FORMAT, VERSION
from .files import ImportedFiles

LONGEST_LINE = 256 * 2**20
"""Bytes. Chosen so that a history of the greatest length fits. Files stand in lines of their own."""

_NO_LINE = "is not a line of an export."
_NO_EXPORT = "does not begin an export of turnwise."
_LARGEST = 2**63 - 1
"""The largest number that a column of a database takes."""


def read_export(lines: Iterable[bytes], files: ImportedFiles | None = None) -> tuple[ConversationRecord, ...]:
    """Return the conversations of an export. Each was verified: its digests hold, and its state is that of its newest
    step. Its files are put into `files`; without that they are looked at and left out.

    The lines may have their line ends, and several exports may follow each other. Raises `NotAnExport`, which names the
    line. `Pure.`
    """
    with ExitStack() as stack:
        return _read_lines(lines, stack.enter_context(ImportedFiles()) if files is None else files)


def _read_lines(lines: Iterable[bytes], files: ImportedFiles) -> tuple[ConversationRecord, ...]:
    reader = _Reader(files)
    for number, line in enumerate(lines, start=1):
        reader.take(number, line)
    return reader.finish()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file. Raises `NotAnExport` for one that is longer than any line of an export."""
    number = 1
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise NotAnExport(number, "is longer than any line of an export.")
        yield line
        number += 1


class _Member(NamedTuple):
    """A member of an object: its value, and the text that it was read from."""

    value: Any
    text: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _members_of(line: str) -> dict[str, _Member]:
    """Return the members of the object in the line, which has no spaces between its members. `Pure.`

    Raises ValueError for anything else, for a member that is named twice, and for too deep nesting.
    """
    members: dict[str, _Member] = {}
    end = len(line) - 1
    try:
        position = _skip(line, 0, "{")
        while True:
            name, position = _DECODER.raw_decode(line, position)
            start = _skip(line, position, ":")
            value, position = _DECODER.raw_decode(line, start)
            if not isinstance(name, str) or name in members:
                raise ValueError(name)
            members[name] = _Member(value, line[start:position])
            if position == end and line[position] == "}":
                return members
            position = _skip(line, position, ",")
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _skip(line: str, position: int, character: str) -> int:
    if line[position : position + 1] != character:
        raise ValueError(character)
    return position + 1


# --- what a line may hold


def _identifier(text: str) -> str:
    if not text.isprintable() or " " in text:
        raise ValueError("an id must be printable and without spaces, because lists show it between spaces")
    return text


def _moment(text: object) -> int:
    at = datetime.fromisoformat(str(text))
    if at.tzinfo is None:
        raise ValueError("a time needs a time zone")
    return to_microseconds(at)


def _bytes(text: object) -> bytes:
    if not re.fullmatch("[0-9a-f]{32}", str(text)):
        raise ValueError("not a digest")
    return bytes.fromhex(str(text))


_Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), AfterValidator(_identifier)]
_Count = Annotated[int, Field(ge=0, le=_LARGEST)]
_Number = Annotated[int, Field(ge=1, le=_LARGEST)]
_Moment = Annotated[int, BeforeValidator(_moment)]
_Digest = Annotated[bytes, BeforeValidator(_bytes)]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _First(_Line):
    format: str
    version: int


class _Copied(_Line):
    conversation: _Id
    seq: _Number


class _Head(_Line):
    conversation: _Id
    created_at: _Moment
    owner: Text | None = None
    parent: Text | None = None
    origin: _Copied | None = None
    seq: _Number


class _Step(_Line):
    """The members of a step, without the texts that are kept as they are written."""

    seq: _Number
    turn: _Count
    type: str
    version: _Count
    at: _Moment
    event_id: Text | None = None
    effect_id: _Count | None = None
    state: _Digest
    chain: _Digest


class _FilePart(_Line):
    file: str
    size: _Count
    part: _Count
    data: str


class _Last(_Line):
    conversations: _Count


# --- reading them

Members = Mapping[str, _Member]

L = TypeVar("L", bound=_Line)


@dataclass
class _Conversation:
    """A conversation that is being read: the line that it began with, and its steps so far."""

    line: int
    head: _Head
    state: str
    rows: list[EventRow] = field(default_factory=list)
    taken: set[str | int] = field(default_factory=set)
    """The ids of requests, and of effects that were answered."""
    awaited: set[int] = field(default_factory=set)
    """The ids of all effects that have an answer."""

    def take(self, line: int, row: EventRow) -> None:
        """Add the next step. Raises `NotAnExport`."""
        if row.seq != len(self.rows) + 1:
            raise NotAnExport(line, f"holds step {row.seq}, and step {len(self.rows) + 1} belongs there.")
        try:
            entry = decode(row)
        except Damaged as damaged:
            fault = "cannot be read: it was changed or damaged, or a newer turnwise wrote it."
            raise NotAnExport(line, fault) from damaged
        try:
            check_link(entry, len(self.rows), self.rows[-1].chain if self.rows else GENESIS)
        except Damaged as damaged:
            raise NotAnExport(line, "is not what was exported: it was changed or damaged.") from damaged
        if isinstance(entry.event, Opened | DetailsChanged) and marks_of(entry.event.metadata or {}):
            raise NotAnExport(line, f"has metadata whose names begin with {MARK}, which are reserved for hosts.")
        if isinstance(entry.event, Opened):
            self._check_opening(line, row, entry.event)
        ids = {each for each in (row.event_id, row.effect_id) if each is not None}
        if ids & self.taken:
            raise NotAnExport(line, "repeats the request or the answer of an earlier step.")
        self.taken |= ids
        self.rows.append(row)
        self.awaited |= {effect.effect_id for effect in entry.effects if isinstance(effect, AwaitedEffect)}

    def _check_opening(self, line: int, row: EventRow, event: Opened) -> None:
        if event.owner is not None and event.owner != self.head.owner:
            raise NotAnExport(line, "names another owner than the line of its conversation.")
        head = without_given_messages(row)
        if head is not row and decode(head).event != event.replace(messages=()):
            raise NotAnExport(line, "does not have the messages of its history at the end, where turnwise writes them.")

    @property
    def record(self) -> ConversationRecord:
        """The conversation, once all of its steps were read. Raises `NotAnExport`."""
        head = self.head
        return ConversationRecord(
            id=head.conversation,
            created_at=head.created_at,
            head=self._head_row(),
            steps=tuple(self.rows),
            owner=head.owner,
            parent=head.parent,
            origin=None if head.origin is None else Origin(head.origin.conversation, head.origin.seq),
        )

    def _head_row(self) -> HeadRow:
        newest = self.rows[-1]
        if digest(self.state) != newest.state:
            raise NotAnExport(self.line, f"has another state than its newest step, {newest.seq}.")
        state = self._state(newest)
        if state.book.seq != newest.seq or not pending(state) <= self.awaited:
            raise NotAnExport(self.line, "has a state to which the steps do not lead.")
        return head_row(state, self.state, newest)

    def _state(self, newest: EventRow) -> State:
        undecoded = HeadRow(newest.seq, newest.chain, "", False, None, newest.at, self.state)
        try:
            return decode_state(undecoded)
        except Damaged as damaged:
            raise NotAnExport(self.line, "has a state that cannot be read.") from damaged


class _Reader:
    """Reads an export line by line."""

    def __init__(self, files: ImportedFiles) -> None:
        self._files = files
        self._line = 0
        self._records: list[ConversationRecord] = []
        self._counted = 0
        self._conversation: _Conversation | None = None
        self._expected: Callable[[Members], None] = self._begin

    def take(self, number: int, line: bytes) -> None:
        """Read the next line. Raises `NotAnExport`."""
        self._line = number
        try:
            members = _members_of(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise NotAnExport(number, "is not UTF-8 text.") from error
        except ValueError as error:
            raise self._fault() from error
        self._expected(members)

    def finish(self) -> tuple[ConversationRecord, ...]:
        """Return all conversations after the last line. Raises `NotAnExport`."""
        if not self._line or self._expected != self._begin:
            raise NotAnExport(self._line + 1, "is missing: the export was cut off.")
        return tuple(self._records)

    def _begin(self, members: Members) -> None:
        first = self._read(_First, members)
        if first.format != FORMAT:
            raise self._fault()
        if first.version > VERSION:
            raise NotAnExport(self._line, "was written by a newer turnwise; update turnwise to import it.")
        self._expected = self._between

    def _between(self, members: Members) -> None:
        if "file" in members:
            self._take_file(self._read(_FilePart, members))
        elif not self._files.is_complete:
            raise NotAnExport(self._line, "follows a file of which the end is missing.")
        elif "conversations" in members:
            self._end(self._read(_Last, members).conversations)
        elif "state" not in members:
            raise self._fault()
        else:
            head = self._read(_Head, members, without={"state"})
            self._conversation = _Conversation(self._line, head, members["state"].text)
            self._expected = self._step

    def _take_file(self, part: _FilePart) -> None:
        try:
            self._files.take(part.file, part.size, part.part, part.data)
        except ValueError as error:
            raise NotAnExport(self._line, "holds a part of a file that is not what was exported.") from error

    def _step(self, members: Members) -> None:
        conversation = self._conversation
        assert conversation is not None, "a step is expected within a conversation only"
        if "payload" not in members:
            raise self._fault()
        texts = {name: members[name].text for name in ("payload", "effects", "ended") if name in members}
        step = self._read(_Step, members, without=texts.keys())
        conversation.take(self._line, EventRow(**{"effects": None, "ended": None, **dict(step), **texts}))
        if step.seq == conversation.head.seq:
            self._records.append(conversation.record)
            self._expected = self._between

    def _end(self, conversations: int) -> None:
        found = len(self._records) - self._counted
        if conversations != found:
            raise NotAnExport(self._line, f"counts {conversations} conversations, and {found} stand before it.")
        self._counted = len(self._records)
        self._expected = self._begin

    def _read(self, kind: type[L], members: Members, without: Container[str] = ()) -> L:
        """Validate the members, without those in `without`, as a line of this kind. Raises `NotAnExport`."""
        try:
            return kind.model_validate({name: member.value for name, member in members.items() if name not in without})
        except ValueError as error:
            raise self._fault() from error

    def _fault(self) -> NotAnExport:
        return NotAnExport(self._line, _NO_EXPORT if self._expected == self._begin else _NO_LINE)
