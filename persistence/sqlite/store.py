"""Conversations in a SQLite database: the store, which implements the port `Store`, and the log of one of its
conversations.

The SQL is elsewhere. Here each request of the engine is handed to the thread that may carry it out, and what it returns
is put into the values of the port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ...states.errors import UnknownConversation
from ...states.events import Event, Opened
from ...states.step import Step
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ..codec import GENESIS, EncodedStep, encode, to_microseconds
from ..files import DatabaseFiles, check_files
from ..ports import FileStore, LoadedConversation
from ..records import (
    ConversationRecord,
    Outgoing,
    RebuildIndex,
    Repair,
    ReplaceDetails,
    StorageFault,
    StoredEntry,
    Undelivered,
)
from ..sql import queries
from ..sql.listing import read_summaries
from ..sql.reading import read_entries, read_head, read_missed, read_outbox, read_request, read_scheduled
from ..sql.repairs import repair
from ..sql.writing import Append, LogPosition, OutboxKey, Postponement, begin_attempt
from ..summaries import EVERYTHING, ConversationFilter, Details, Summary
from ..vectors import encoded
from . import examination, indexing, search
from .database import BUSY_TIMEOUT, Database
from .file import driver_of
from .indexing import Follower
from .writer import Receipt


class SqliteStore:
    """One database of conversations. Made by `open`; whoever opens it must `close` it.

    Every method leaves the disk to a thread and does not block the event loop. One thing is an exception: a step is
    committed in the event loop's thread where the disk is so quick that a change of threads would take longer. Besides
    what each of them says, all raise `StorageFailed` if the disk fails, and `StoreError` once the store is closed.
    """

    def __init__(self, database: Database, file_store: FileStore | None = None) -> None:
        self.database = database
        self._unclaimed: deque[str] = deque()
        self._claimed: set[str] = set()
        self._hidden: dict[str, int] = {}
        """The keys of conversations that a damaged index of ids does not find, once `survey` has looked."""
        self.files: DatabaseFiles = DatabaseFiles(
            lambda work: database.read(lambda connection: work(driver_of(connection))),
            lambda work: database.write(lambda connection: work(driver_of(connection))),
            lambda error: False,  # one transaction at a time writes
            file_store,
        )

    @classmethod
    async def open(
        cls,
        url: str | Path,
        *,
        read_only: bool = False,
        busy_timeout: float = BUSY_TIMEOUT,
        file_store: FileStore | None = None,
    ) -> SqliteStore:
        """Open the database at `url`: a path, a URL like `sqlite:///dinner.db`, or `:memory:`.

        One store at a time may write to a file: until it is closed, or its process ends, it holds a lock beside the
        file. A missing file is created, readable by its owner only, and an older one is migrated. `read_only` takes no
        lock and changes nothing, so it works beside an engine that is running, and after one that crashed; SQLite may
        leave an empty write-ahead log beside the file. `busy_timeout` is how many seconds to wait for another program
        that holds the file locked. The bytes of files go to the `file_store`, or into the database.

        Raises `StoreError` for an invalid address, a folder, a missing file (`read_only`), a file that is not a
        database or belongs to another program, a database of a newer turnwise, and one that is open in another engine.
        """
        return cls(await Database.open(url, read_only=read_only, busy_timeout=busy_timeout), file_store)

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> SqliteLog:
        """Store a new conversation with its first step, a sub-agent only if its parent is stored.

        Raises `StoreConflict` if the id is taken, and `UnknownConversation`.
        """
        row, head = encode(event, step, GENESIS)
        record = ConversationRecord(conversation_id, row.at, head, (row,), event.owner)
        details = Details().after(event)

        follower = self.database.writing.follower

        def add(connection: Connection) -> int:
            driver = driver_of(connection)
            if event.parent is not None:
                queries.found(driver, event.parent)  # it must be there still
            key = queries.add_record(driver, record, details)
            check_files(driver, key, record)
            return _followed(follower, key)

        key = await self.database.write(add)
        position = LogPosition(key, row.seq, row.chain, row.chain, is_titled=details.first_message is not None)
        return SqliteLog(self.database, conversation_id, position)

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Return the conversation as it was left, with its log open for the next step. The steps so far are not read.

        Raises `UnknownConversation`, and `Damaged` if the head or one of the few steps that are read is not what was
        stored.
        """
        found = await self.database.read(lambda connection: read_head(driver_of(connection), conversation_id))
        log = SqliteLog(self.database, conversation_id, found.position)
        return LoadedConversation(log, found.state, found.context)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Return the steps that follow the step `after`, in order, up to and including `up_to` or the newest.

        Raises `UnknownConversation`, and `Damaged` if one of these steps is missing or is not what was stored.
        """
        wanted = conversation_id, after, up_to
        return await self.database.read(lambda connection: read_entries(driver_of(connection), *wanted))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation so that nothing of it is left in the file, or in the files beside it.

        When this returns, the conversation is gone and its rows are overwritten. In a file of up to 8 MiB nothing of it
        is left in the bytes then. A larger one is rewritten when the store closes, or, if the process dies before, when
        a store opens it the next time: until then parts of the conversation may stand in gaps between other rows. No
        other write waits for more than a piece of this. Raises `UnknownConversation`, and `TracesLeft` if the
        conversation is gone but the file could not be rewritten now.
        """
        places = await self.database.erase(conversation_id)
        if places is None:
            raise UnknownConversation(conversation_id)
        await self.files.remove(places)

    # --- many conversations

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> tuple[Summary, ...]:
        """Return summaries, the conversation that moved last first; `Store.list` says the rest.

        Raises `Damaged` if one of them cannot be read.
        """
        return await self.database.read(lambda connection: read_summaries(driver_of(connection), wanted))

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """Return up to `limit` conversations with a scheduled wake-up, the earliest first. An index finds them.

        Raises `Damaged` if a moment cannot be read.
        """
        return await self.database.read(lambda connection: read_scheduled(driver_of(connection), limit))

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Return the ids of up to `limit` conversations that wait, each once as long as this store is open."""
        if not self._unclaimed:
            waiting = await self.database.read(lambda connection: queries.waiting(driver_of(connection)))
            self._unclaimed.extend(each for each in waiting if each not in self._claimed)
            self._claimed.update(waiting)
        return tuple(self._unclaimed.popleft() for _ in range(min(limit, len(self._unclaimed))))

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Let these conversations be claimed again."""
        self._claimed.difference_update(conversation_ids)

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Return the deliveries of these conversations that are not acknowledged. Raises `Damaged` if one of them
        cannot be read.

        A delivery that was acknowledged before is not returned, unless the disk has not taken the receipt yet.
        """
        wanted = tuple(conversation_ids)
        await self.database.flush()
        return await self.database.read(lambda connection: read_outbox(driver_of(connection), wanted))

    # --- texts

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords of the query, the best ones first; `SearchableStore.search` says the
        rest.

        What was stored before this call is indexed first. In a database that was opened for reading only, the texts
        that an engine has indexed are found. Raises `StoreError` if this SQLite was built without FTS5.
        """
        await self.database.index(query.scope)
        return await self.database.read(lambda connection: search.search(driver_of(connection), query))

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first, like `search`."""
        await self.database.index(scope)
        return await self.database.read(lambda connection: search.recent(driver_of(connection), scope, since))

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return texts that have no vector in this space, the newest first, each with its number."""
        await self.database.index(scope)
        return await self.database.read(lambda connection: search.without(driver_of(connection), scope, space, limit))

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store the vectors of these texts. Raises `InvalidInput`; then nothing is stored."""
        stored = {number: encoded(vector) for number, vector in vectors.items()}
        await self.database.write(lambda connection: search.keep(driver_of(connection), space, stored))

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts whose vectors are nearest, the nearest first; all vectors of the owner are read. Raises
        `InvalidInput`."""
        vector = encoded(query.vector)
        return await self.database.read(lambda connection: search.nearest(driver_of(connection), query, vector))

    # --- raw records

    async def ids(self, prefix: str = "") -> tuple[str, ...]:
        """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
        return await self.database.read(lambda connection: queries.ids(driver_of(connection), prefix))

    async def read_record(self, conversation_id: str) -> ConversationRecord:
        """Return the rows of a conversation as they are stored, damaged or not. Raises `UnknownConversation`."""
        key = self._hidden.get(conversation_id)
        return await self.database.read(
            lambda connection: queries.read_record(driver_of(connection), conversation_id, key)
        )

    async def write_records(self, records: Iterable[ConversationRecord]) -> None:
        """Store conversations, all of them or none. Raises `StoreConflict` if an id is taken."""
        given = tuple(records)
        follower = self.database.writing.follower

        def add(connection: Connection) -> None:
            for record in given:
                _followed(follower, queries.add_record(driver_of(connection), record))

        await self.database.write(add)

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Store a conversation that was made from `source_id`, unless that one was deleted. Raises
        `UnknownConversation` and `StoreConflict`."""
        follower = self.database.writing.follower

        def add(connection: Connection) -> None:
            driver = driver_of(connection)
            queries.found(driver, source_id)  # it must be there still
            _followed(follower, queries.add_record(driver, record))

        await self.database.write(add)

    async def examine_storage(self) -> tuple[StorageFault, ...]:
        """Return what SQLite finds wrong with the file, rows that belong to no conversation, and whether the index of
        texts agrees with the logs."""
        found = await self.database.read(
            lambda connection: (*examination.faults(connection), *indexing.faults(connection))
        )
        return (*found, *await self.files.faults())

    async def survey(self) -> tuple[tuple[str, ...], tuple[StorageFault, ...]]:
        """Return the ids of all conversations that can be found, and what hides the others."""
        found = await self.database.look(examination.survey)
        self._hidden = found.hidden
        return found.ids, found.faults

    async def repair(self, repairs: Iterable[Repair]) -> None:
        """Make these repairs in one transaction. Raises `StorageFailed`; then nothing was repaired. An index that must
        be built again is dropped in that transaction and built behind it."""
        wanted = tuple(repairs)
        rebuilds = any(isinstance(each, RebuildIndex) for each in wanted)

        def make(connection: Connection) -> None:
            for each in wanted:
                if isinstance(each, ReplaceDetails):  # its owner may change, and with it the words of the index
                    self._forget_texts(connection, each.conversation_id)
            if rebuilds:
                search.drop(driver_of(connection))
            repair(driver_of(connection), wanted)
            self.database.writing.follower.forget()

        await self.database.write(make)
        if rebuilds:
            await self.database.index()

    def _forget_texts(self, connection: Connection, conversation_id: str) -> None:
        """Have the index forget a conversation, which is indexed again then. In the thread that writes."""
        if not search.remove(driver_of(connection), conversation_id):
            self.database.writing.follower.forget()

    async def close(self) -> None:
        """Finish what was handed in, close the file and release the lock. A second call does nothing."""
        await self.database.close()


def _followed(follower: Follower, key: int) -> int:
    """Have the texts of a conversation that was stored just now indexed, and return its key. Work that is handed to the
    writing thread does not hold the store: a thread cannot wait for its own end."""
    follower.note(key)
    return key


class SqliteLog:
    """Implements the port `Log`. Made by `SqliteStore.create` and `SqliteStore.load`."""

    __slots__ = ("_conversation_id", "_database", "_position")

    def __init__(self, database: Database, conversation_id: str, position: LogPosition) -> None:
        self._database = database
        self._conversation_id = conversation_id
        self._position = position

    @property
    def seq(self) -> int:
        """The number of the newest step that this log knows to be stored."""
        return self._position.seq

    @property
    def chain(self) -> bytes:
        """The link of that step."""
        return self._position.chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step and its deliveries in one transaction; `Log.append` says the rest.

        A disk that reports a failed commit may have stored the step. The same step may be appended again; if it is
        found in the log then, it is not stored a second time.
        """
        outgoing = tuple(dict.fromkeys(Outgoing(*target) for target in targets)) if targets else ()
        stored = self._database.append(Append(self._position, EncodedStep.of(event, step), outgoing))
        if stored is not None:
            await stored

    async def request(self, event_id: str) -> StoredEntry | None:
        """Return the step that took the request with this id, or None.

        Raises `UnknownConversation` and `Damaged`.
        """
        where = self._conversation_id, self._position
        return await self._database.read(lambda connection: read_request(driver_of(connection), *where, event_id))

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """Return the steps that others have stored behind `seq`, and move on to the newest of them.

        Raises `UnknownConversation` and `Damaged`.
        """
        database, where = self._database, (self._conversation_id, self._position)

        def read(connection: Connection) -> tuple[StoredEntry, ...]:
            entries, head = read_missed(driver_of(connection), *where)
            self._position.seq, self._position.chain = head.seq, head.chain
            return entries

        return await (database.read(read) if database.is_read_only else database.write(read))

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Remove a delivery that has arrived from the outbox.

        Returns at once. The receipt is stored with the next step of any conversation, or a moment later, and is kept
        until the disk takes it. After a crash before that, the delivery is made once more.
        """
        self._database.note(Receipt(self._key(effect_id, target)))

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that a delivery has failed `attempts` times and is tried again at `next_attempt`.

        Stored like `acknowledge`, and without effect once the delivery is acknowledged.
        """
        postponement = Postponement(attempts, to_microseconds(next_attempt))
        self._database.note(Receipt(self._key(effect_id, target), postponement))

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at a delivery which an earlier process has left, the `begun`-th in a row.

        Returns when it is stored, behind the receipts so far. Raises `StorageFailed`.
        """
        key = self._key(effect_id, target)
        await self._database.flush()
        await self._database.write(lambda connection: begin_attempt(driver_of(connection), key, begun))

    def _key(self, effect_id: int, target: str) -> OutboxKey:
        return OutboxKey(self._position.key, target, effect_id, self._position.origin)


if TYPE_CHECKING:
    from ..ports import DamageableStorage, Log, RepairableStorage, SearchableStore, Store

    _STORE: type[Store] = SqliteStore
    _DAMAGEABLE: type[DamageableStorage] = SqliteStore
    _REPAIRABLE: type[RepairableStorage] = SqliteStore
    _SEARCHABLE: type[SearchableStore] = SqliteStore
    _LOG: type[Log] = SqliteLog
