"""The store: all conversations of one database.

It keeps what happened and gives it back; what it means is for others to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ...states.errors import UnknownConversation
from ...states.events import Opened
from ...states.states import State
from ...states.step import Step
from ..errors import Damaged
from ..records.codec import decode, decode_state, encode, from_microseconds, sight
from ..records.digests import GENESIS
from ..records.entry import StoredEntry
from ..records.integrity import check_whole
from ..records.origin import Origin
from ..records.outbox import Undelivered
from ..records.rows import Head, StoredRows
from ..records.summary import Summary
from . import recorder
from .append import Place
from .conversation_record import ConversationRecord, add_whole
from .database import BUSY_TIMEOUT, Database
from .log import ConversationLog


@dataclass(frozen=True)
class Loaded:
    """A conversation as it was left: its log, open for the next step, the state it rests in, and all steps so far."""

    log: ConversationLog
    state: State
    entries: tuple[StoredEntry, ...]


class Store:
    """One database of conversations: it fills the port `StorePort`. Made by `open`; whoever opens it must `close` it.

    All methods wait for a thread that works with the disk, never the event loop itself. Besides what each of them
    says, all raise `StorageFailed` if the disk does not do its work, and `StoreError` once the store is closed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, url: str | Path, *, read_only: bool = False, busy_timeout: float = BUSY_TIMEOUT) -> Store:
        """Open the database at `url`: a path, a URL like `sqlite:///dinner.db`, or `:memory:`.

        One engine writes to a file at a time: until the store is closed, or its process dies, it holds a lock beside
        the file. A file that is missing is made, for its owner's eyes only, and an older one is brought up to date.
        `read_only` takes no lock and changes nothing, so it works beside an engine that is running, and after one
        that crashed; SQLite may leave an empty write-ahead log beside the file. `busy_timeout` is how many seconds to
        wait for another program that holds the file locked.

        Raises `StoreError` for an address that is none, a folder or (`read_only`) a file that is missing, a file that
        is no database or another program's, a database of a newer turnwise, and one that is open in another engine.
        """
        return cls(await Database.open(url, read_only=read_only, busy_timeout=busy_timeout))

    async def create(self, conversation_id: str, event: Opened, step: Step) -> ConversationLog:
        """Store a new conversation with its first step, as `begin` gives it.

        Raises `StoreConflict` if there is one with this id.
        """
        row, rest = encode(event, step, GENESIS)
        whole = ConversationRecord(conversation_id, created_at=row.at, rest=rest, steps=(row,))
        head = await self._database.write(lambda connection: add_whole(connection, whole))
        return ConversationLog(self._database, Place(head, row.chain))

    async def load(self, conversation_id: str) -> Loaded:
        """The conversation as it was left, with its log open for the next step.

        Raises `UnknownConversation`, and `Damaged` if what is stored is not what was stored once: nobody should act
        on it. `entries` and replay read as far as there is something to be read.
        """

        def read(connection: Connection) -> Loaded:
            stored = recorder.stored(connection, conversation_id)
            entries = tuple(map(sight, stored.steps))
            check_whole(entries, stored.rest)
            place = Place(Head(stored.key, stored.rest.seq, stored.rest.chain), entries[0].chain)
            log = ConversationLog(self._database, place)
            return Loaded(log, decode_state(stored.rest), entries)

        return await self._database.read(read)

    async def entries(self, conversation_id: str, after: int = 0) -> tuple[StoredEntry, ...]:
        """The steps behind the step `after`, in order. Raises `UnknownConversation`, and `Damaged` for a step that
        cannot be read."""

        def read(connection: Connection) -> tuple[StoredEntry, ...]:
            return tuple(decode(row) for row in recorder.stored(connection, conversation_id, after).steps)

        return await self._database.read(read)

    async def rows(self, conversation_id: str) -> StoredRows:
        """The conversation as it stands in the tables, damaged or not. Raises `UnknownConversation`."""
        return await self._database.read(lambda connection: recorder.stored(connection, conversation_id))

    async def list(self) -> tuple[Summary, ...]:
        """All conversations, the one that moved last first. Raises `Damaged` if one of them cannot be read."""
        return await self._database.read(lambda connection: tuple(map(_summary, recorder.summaries(connection))))

    async def waiting(self) -> tuple[str, ...]:
        """The ids of the conversations that have something to do when the store is opened, the one whose timer is due
        soonest first: they wait for work, or a timer runs in them, or something is still to be delivered."""
        return await self._database.read(recorder.waiting)

    async def outbox(self) -> tuple[Undelivered, ...]:
        """What is still to be delivered, of all conversations; for each of them and each target in the order in which
        it was said. Raises `Damaged` if it cannot be read.

        What was acknowledged before is no longer listed, unless the disk did not take it yet.
        """
        await self._database.flush()
        return await self._database.read(lambda connection: tuple(map(_undelivered, recorder.undelivered(connection))))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation so that nothing it held is left in the file, or in the files beside it.

        The whole file is written anew for that, so this takes as long as copying it does. Raises
        `UnknownConversation`, and `TracesLeft` if the conversation is gone but the file could not be rewritten.
        """
        if not await self._database.erase(lambda connection: recorder.remove(connection, conversation_id)):
            raise UnknownConversation(conversation_id)

    @property
    def database(self) -> Database:
        """The open database, for what else in this package works with the tables: copies, imports, the doctor."""
        return self._database

    async def close(self) -> None:
        """Finish what was handed in, close the file and release the lock. To close twice is to close once."""
        await self._database.close()


def _summary(row: recorder.SummaryRow) -> Summary:
    try:
        origin = None if row.origin is None or row.origin_seq is None else Origin(row.origin, row.origin_seq)
        return Summary(row.id, row.state_type, row.waits, from_microseconds(row.updated_at), origin)
    except (TypeError, OverflowError) as error:
        raise Damaged(0, "The list of the conversations cannot be read: the file is damaged.") from error


def _undelivered(row: recorder.UndeliveredRow) -> Undelivered:
    due = row.next_attempt
    try:
        if any(type(count) is not int for count in (row.effect_id, row.seq, row.attempts)):
            raise TypeError("a count that is none")
        return Undelivered(*row[:-1], next_attempt=None if due is None else from_microseconds(due))
    except (TypeError, OverflowError) as error:
        raise Damaged(0, "What is to be delivered cannot be read: the file is damaged.") from error


if TYPE_CHECKING:
    from ..ports import StorePort

    _FILLS: type[StorePort] = Store
