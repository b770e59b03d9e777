"""Reads what `export` wrote, and believes nothing of it.

A file comes from anywhere. So every line is checked against the form it must have, every step against its digests, and
the end against what was announced: what comes out of here is what was exported once, or the error that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, BinaryIO, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ...states.effects import AwaitedEffect
from ...states.states import State, pending
from ...states.values.value import Text
from ..errors import Damaged, NotAnExport
from ..records.codec import decode, decode_state, head_row, to_microseconds
from ..records.conversation_record import ConversationRecord
from ..records.digests import GENESIS, digest
from ..records.integrity import check_link
from ..records.origin import Origin
from ..records.rows import EventRow, HeadRow
from .export import FORMAT, VERSION
from .json_members import Member, members_of

LONGEST_LINE = 256 * 2**20
"""Bytes. Ours: a message with as many images as one may have, each as large as one may be, takes 200 million."""

LONGEST_ID = 200
"""Characters. Ours: the ids that the engine makes have 36."""

_NO_LINE = "is not a line of an export."
_NO_EXPORT = "does not begin an export of turnwise."
_LARGEST = 2**63 - 1
"""The largest number that a column takes."""


def read_export(lines: Iterable[bytes]) -> tuple[ConversationRecord, ...]:
    """The conversations of an export, every one checked: its digests hold, and its state is that of its newest step.

    The lines may have their ends; several exports may follow each other. Raises `NotAnExport`, which names the line.
    """
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        reader.take(number, line)
    return reader.finish()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. Raises `NotAnExport` for one that is longer than any line of an export."""
    number = 1
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise NotAnExport(number, "is longer than any line of an export.")
        yield line
        number += 1


# --- what a line may hold


def _identifier(text: str) -> str:
    if not text.isprintable() or " " in text:
        raise ValueError("ids are put on screens, between spaces")
    return text


def _moment(text: object) -> int:
    at = datetime.fromisoformat(str(text))
    if at.tzinfo is None:
        raise ValueError("a moment that could be anywhere")
    return to_microseconds(at)


def _bytes(text: object) -> bytes:
    if not re.fullmatch("[0-9a-f]{32}", str(text)):
        raise ValueError("no digest")
    return bytes.fromhex(str(text))


_Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), AfterValidator(_identifier)]
_Count = Annotated[int, Field(ge=0, le=_LARGEST)]
_Place = Annotated[int, Field(ge=1, le=_LARGEST)]
_Moment = Annotated[int, BeforeValidator(_moment)]
_Digest = Annotated[bytes, BeforeValidator(_bytes)]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _First(_Line):
    format: str
    version: int


class _Copied(_Line):
    conversation: _Id
    seq: _Place


class _Head(_Line):
    conversation: _Id
    created_at: _Moment
    owner: Text | None = None
    parent: Text | None = None
    origin: _Copied | None = None
    seq: _Place


class _Told(_Line):
    """What a step tells beside the texts that are kept as they stand."""

    seq: _Place
    turn: _Count
    type: str
    version: _Count
    at: _Moment
    event_id: Text | None = None
    effect_id: _Count | None = None
    state: _Digest
    chain: _Digest


class _Last(_Line):
    conversations: _Count


# --- reading them

Members = Mapping[str, Member]

L = TypeVar("L", bound=_Line)


@dataclass
class _Conversation:
    """A conversation on its way in: the line that it began with, and the steps so far."""

    line: int
    head: _Head
    state: str
    rows: list[EventRow] = field(default_factory=list)
    taken: set[str | int] = field(default_factory=set)
    """The ids of requests, and of effects that were answered."""
    wanted: set[int] = field(default_factory=set)
    """The ids of effects that have an answer."""

    def take(self, line: int, row: EventRow) -> None:
        """Take the next step in. Raises `NotAnExport`."""
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
        ids = {each for each in (row.event_id, row.effect_id) if each is not None}
        if ids & self.taken:
            raise NotAnExport(line, "repeats the request or the answer of an earlier step.")
        self.taken |= ids
        self.rows.append(row)
        self.wanted |= {effect.effect_id for effect in entry.effects if isinstance(effect, AwaitedEffect)}

    @property
    def record(self) -> ConversationRecord:
        """The conversation, once all of its steps are there. Raises `NotAnExport`."""
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
            raise NotAnExport(self.line, f"tells another state than that behind step {newest.seq}.")
        state = self._state(newest)
        if state.book.seq != newest.seq or not pending(state) <= self.wanted:
            raise NotAnExport(self.line, "tells a state that the steps do not lead to.")
        return head_row(state, self.state, newest)

    def _state(self, newest: EventRow) -> State:
        untold = HeadRow(newest.seq, newest.chain, "", False, None, newest.at, self.state)
        try:
            return decode_state(untold)
        except Damaged as damaged:
            raise NotAnExport(self.line, "tells a state that cannot be read.") from damaged


class _Reader:
    """Reads an export line by line."""

    def __init__(self) -> None:
        self._line = 0
        self._records: list[ConversationRecord] = []
        self._counted = 0
        self._conversation: _Conversation | None = None
        self._expected: Callable[[Members], None] = self._begin

    def take(self, number: int, line: bytes) -> None:
        """Take the next line. Raises `NotAnExport`."""
        self._line = number
        try:
            members = members_of(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise NotAnExport(number, "is not UTF-8 text.") from error
        except ValueError as error:
            raise self._fault() from error
        self._expected(members)

    def finish(self) -> tuple[ConversationRecord, ...]:
        """All conversations, once there are no more lines. Raises `NotAnExport`."""
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
        if "conversations" in members:
            self._end(self._read(_Last, members).conversations)
        elif "state" not in members:
            raise self._fault()
        else:
            head = self._read(_Head, members, without={"state"})
            self._conversation = _Conversation(self._line, head, members["state"].text)
            self._expected = self._step

    def _step(self, members: Members) -> None:
        conversation = self._conversation
        assert conversation is not None, "a step is expected within a conversation only"
        if "payload" not in members:
            raise self._fault()
        texts = {name: members[name].text for name in ("payload", "effects", "ended") if name in members}
        told = self._read(_Told, members, without=texts.keys())
        conversation.take(self._line, EventRow(**{"effects": None, "ended": None, **dict(told), **texts}))
        if told.seq == conversation.head.seq:
            self._records.append(conversation.record)
            self._expected = self._between

    def _end(self, conversations: int) -> None:
        found = len(self._records) - self._counted
        if conversations != found:
            raise NotAnExport(self._line, f"counts {conversations} conversations, and {found} stand before it.")
        self._counted = len(self._records)
        self._expected = self._begin

    def _read(self, kind: type[L], members: Members, without: Container[str] = ()) -> L:
        """The members, but for those left out, as a line of this kind. Raises `NotAnExport`."""
        try:
            return kind.model_validate({name: member.value for name, member in members.items() if name not in without})
        except ValueError as error:
            raise self._fault() from error

    def _fault(self) -> NotAnExport:
        return NotAnExport(self._line, _NO_EXPORT if self._expected == self._begin else _NO_LINE)
