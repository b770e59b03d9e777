"""Conversations in a PostgreSQL database: the store, which implements the port `Store`, and the log of one of its
conversations. Several processes share it: `custody` says who may act on a conversation.

The SQL is elsewhere, most of it in `sql/`. Here each request of the engine becomes one transaction in a thread, and
what it returns is put into the values of the port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from ...states.errors import UnknownConversation
from ...states.events import Event, Opened
from ...states.step import Step
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ..codec import GENESIS, EncodedStep, encode, to_microseconds
from ..errors import CustodyLost, StorageFailed, StoreConflict
from ..files import DatabaseFiles, check_files
from ..ports import ConversationGone, FileStore, Jobs, LiveShown, LoadedConversation, Notice, StepStored, Taken, Untried
from ..records import (
    ConversationRecord,
    Outgoing,
    RebuildIndex,
    Repair,
    ReplaceDetails,
    ReplaceHead,
    StorageFault,
    StoredEntry,
    Undelivered,
)
from ..sql import files as stored_files
from ..sql import queries
from ..sql.listing import read_summaries
from ..sql.reading import read_entries, read_head, read_missed, read_outbox, read_request, read_scheduled
from ..sql.repairs import repair
from ..sql.statements import Driver
from ..sql.writing import Append, LogPosition, OutboxKey, Postponement, begin_attempt
from ..summaries import EVERYTHING, ConversationFilter, Details, Summary
from ..vectors import encoded
from . import custody, examination, search
from .address import PostgresAddress
from .connection import PostgresDriver
from .custody import Calls, Work, WorkCalls
from .database import PostgresDatabase
from .job_tables import SILENCE, JobTables
from .jobs import PostgresJobs
from .notices import Execute, Notices, channel_of
from .receipts import PendingReceipts, Receipt
from .steps import CallingExpression, Outcome, store_step

T = TypeVar("T")


class PostgresStore:
    """One database of conversations, which other processes use as well. Made by `open`; whoever opens it must `close`
    it.

    Besides what each method says, all raise `StorageFailed` if the server cannot be reached or fails, and `StoreError`
    once the store is closed. The server ends what it was doing for a process whose connection is lost, so nothing is
    stored in part.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        notices: Notices,
        jobs: PostgresJobs,
        calls: Calls,
        file_store: FileStore | None = None,
    ) -> None:
        self.database = database
        self.files: DatabaseFiles = DatabaseFiles(database.read, database.write, _is_conflict, file_store)
        self.calls = calls
        self._notices = notices
        self._jobs = jobs
        self._receipts = PendingReceipts(database.write)
        self._tasks = set[asyncio.Task[None]]()
        self._taken: dict[str, Taken] = {}
        """The custodies of this process, by conversation."""

    @classmethod
    async def open(
        cls,
        address: PostgresAddress,
        *,
        connections: int,
        read_only: bool = False,
        create: bool = True,
        file_store: FileStore | None = None,
    ) -> PostgresStore:
        """Open the database at this address; `open_store` says the rest.

        Raises `StoreError` for a server or a database that turnwise cannot use, and changes nothing then.
        """
        database = await PostgresDatabase.open(address, connections=connections, read_only=read_only, create=create)
        try:
            calls = await (database.read(JobTables.found) if read_only else database.write(JobTables.install))
        except BaseException:
            await database.close()
            raise
        notices = Notices(_executing(database), address.direct_conninfo, channel_of(address.schema))
        jobs = PostgresJobs(database, calls, notices)
        return cls(database, notices, jobs, calls, file_store)

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> PostgresLog:
        """Store a new conversation with its first step, a sub-agent only if its parent is stored.

        Raises `StoreConflict` if the id is taken, and `UnknownConversation`.
        """
        row, head = encode(event, step, GENESIS)
        record = ConversationRecord(conversation_id, row.at, head, (row,), event.owner)
        details, work = Details().after(event), Work.of(head)

        def add(driver: Driver) -> int:
            if event.parent is not None:
                _keep(driver, event.parent)
            key = queries.add_record(driver, record, details)
            check_files(driver, key, record)
            custody.call_for_records(self.calls, driver, (record,))
            return key

        key = await self.database.write(add)
        position = LogPosition(key, row.seq, row.chain, row.chain, is_titled=details.first_message is not None)
        self._tell_of_record(record)
        return PostgresLog(self, conversation_id, position, work)

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Return the conversation as it was left, with its log open for the next step. The steps so far are not read.

        Raises `UnknownConversation`, and `Damaged` if the head or one of the few steps that are read is not what was
        stored.
        """
        found = await self.database.read(lambda driver: read_head(driver, conversation_id))
        log = PostgresLog(self, conversation_id, found.position, Work.of(found.head))
        return LoadedConversation(log, found.state, found.context)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Return the steps that follow the step `after`, in order, up to and including `up_to` or the newest.

        Raises `UnknownConversation`, and `Damaged` if one of these steps is missing or is not what was stored.
        """
        return await self.database.read_once(lambda driver: read_entries(driver, conversation_id, after, up_to))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation with all that belongs to it, in one transaction. Raises `UnknownConversation`.

        When this returns, no query finds anything of it any more, in whatever process. Its bytes stay in the files of
        the server until it vacuums the tables and writes over the gaps, in its write-ahead log until that is recycled,
        and in every backup and replica for as long as these are kept: that is the server's, and its administrator's.
        """

        def remove(driver: Driver) -> list[str]:
            deleted = driver.execute(_DELETE, (conversation_id,)).fetchone()
            if deleted is None:
                raise UnknownConversation(conversation_id)
            return stored_files.remove_unused(driver, deleted[0] or ())

        await self.files.remove(await self.database.write(remove))
        self.tell(ConversationGone(conversation_id))

    # --- many conversations

    async def list(self, wanted: ConversationFilter = EVERYTHING) -> tuple[Summary, ...]:
        """Return summaries, the conversation that moved last first; `Store.list` says the rest.

        Raises `Damaged` if one of them cannot be read.
        """
        return await self.database.read(lambda driver: read_summaries(driver, wanted))

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """Return up to `limit` conversations with a scheduled wake-up, the earliest first. An index finds them.

        Raises `Damaged` if a moment cannot be read.
        """
        return await self.database.read_once(lambda driver: read_scheduled(driver, limit))

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Return nothing: jobs say which process looks after what waits."""
        self.database.check_open()
        return ()

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Do nothing, because nothing is claimed."""

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Return the deliveries of these conversations that are not acknowledged. Raises `Damaged` if one of them
        cannot be read.

        A delivery that was acknowledged here before is not returned.
        """
        wanted = tuple(conversation_ids)
        await self.flush()
        return await self.database.read(lambda driver: read_outbox(driver, wanted))

    # --- custody

    @property
    def jobs(self) -> Jobs:
        """What finds a process for the conversations that have work."""
        return self._jobs

    async def take(self, conversation_id: str, holder: str) -> Taken | None:
        """Take the custody of a conversation, whoever has it; None if there is no such conversation.

        May be called again with the same `holder` when it has failed, whether the server had stored it or not.
        """
        taken = await self.database.write_once(lambda driver: custody.take(driver, conversation_id, holder))
        if taken is not None:
            self._taken[conversation_id] = taken
        return taken

    async def let_go(self, taken: Taken, *, at_rest: bool) -> None:
        """Give a custody up, behind the receipts so far; `SharedStore.let_go` says the rest."""
        if self._taken.get(taken.conversation_id) == taken:
            del self._taken[taken.conversation_id]
        await self.flush()
        if not at_rest:
            await self.database.write(lambda driver: custody.pass_on(driver, self.calls, taken))
            self._jobs.tell(taken.conversation_id)
            return
        due = await self.database.write_once(lambda driver: custody.let_go(driver, taken))
        if due is not None:
            await self.database.write(lambda driver: self.calls.call_at(driver, taken.conversation_id, due))
            self._jobs.tell(taken.conversation_id)

    async def confirm(self, taken: Taken) -> bool:
        """Whether this is still the custody of the conversation."""
        return await self.database.read_once(lambda driver: custody.is_held(driver, taken))

    async def find_moved(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """Return the newest step of those of these conversations that are not at the step which is `known` of them, 0
        for one that is not stored any more."""
        return await self.database.read_once(lambda driver: custody.moved(driver, known)) if known else {}

    async def untried(self) -> set[Untried]:
        """Return what some process is about to send for the first time; `SharedStore.untried` says the rest."""
        await self.flush()
        return await self.database.read_once(lambda driver: custody.untried(driver, self._jobs.tables.schema))

    def show(self, shown: LiveShown) -> None:
        """Tell the other processes of a live update. Returns at once."""
        self.tell(shown)

    def notices(self) -> AsyncGenerator[Notice, None]:
        """Listen to the other processes; `SharedStore.notices` says the rest."""
        return self._notices.listen()

    # --- what was said

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords of the query, the best ones first; `SearchableStore.search` says the
        rest.

        What was stored before this call is indexed first. In a database that was opened for reading only, the texts
        that another store has indexed are found.
        """
        return await self._indexed(query.scope, lambda driver: search.search(driver, query))

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first, like `search`."""
        return await self._indexed(scope, lambda driver: search.recent(driver, scope, since))

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return texts that have no vector in this space, the newest first, each with its number."""
        return await self._indexed(scope, lambda driver: search.without(driver, scope, space, limit))

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store the vectors of these texts. Raises `InvalidInput`; then nothing is stored."""
        stored = {number: encoded(vector) for number, vector in vectors.items()}
        await self.database.write(lambda driver: search.keep(driver, space, stored))

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts whose vectors are nearest, the nearest first; all vectors of the owner are read. Raises
        `InvalidInput`."""
        vector = encoded(query.vector)
        return await self.database.read(lambda driver: search.nearest(driver, query, vector))

    async def _indexed(self, scope: MemoryScope, find: Callable[[PostgresDriver], T]) -> T:
        """Return what is found in a scope once its conversations are indexed: in the same transaction, if they are."""

        def look(driver: PostgresDriver) -> tuple[Sequence[int], T | None]:
            moved = () if self.database.is_read_only else search.moved(driver, scope)
            return moved, None if moved else find(driver)

        moved, found = await self.database.read(look)
        if found is not None:
            return found
        for key in moved:
            with suppress(psycopg.errors.ForeignKeyViolation):  # it was deleted in the meantime
                while not await self.database.write(partial(search.index, key=key)):
                    pass
        return await self.database.read(find)

    # --- raw records

    async def ids(self, prefix: str = "") -> tuple[str, ...]:
        """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
        return await self.database.read_once(lambda driver: queries.ids(driver, prefix))

    async def read_record(self, conversation_id: str) -> ConversationRecord:
        """Return the rows of a conversation as they are stored, damaged or not. Raises `UnknownConversation`."""
        return await self.database.read(lambda driver: queries.read_record(driver, conversation_id))

    async def write_records(self, records: Iterable[ConversationRecord]) -> None:
        """Store conversations, all of them or none. Raises `StoreConflict` if an id is taken."""
        given = tuple(records)

        def add(driver: Driver) -> None:
            for record in given:
                queries.add_record(driver, record)
            custody.call_for_records(self.calls, driver, given)

        await self.database.write(add)
        for record in given:
            self._tell_of_record(record)

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Store a conversation that was made from `source_id`, unless that one was deleted. Raises
        `UnknownConversation` and `StoreConflict`."""

        def add(driver: Driver) -> None:
            _keep(driver, source_id)
            queries.add_record(driver, record)
            custody.call_for_records(self.calls, driver, (record,))

        await self.database.write(add)
        self._tell_of_record(record)

    def _tell_of_record(self, record: ConversationRecord) -> None:
        self.tell_of_step(record.id, record.steps[-1].seq, custody.calls_of_record(record))

    # --- for its logs

    def custody_of(self, conversation_id: str) -> Taken | None:
        """Return the custody that this process has of a conversation, as far as it knows."""
        return self._taken.get(conversation_id)

    def tell(self, notice: Notice) -> None:
        """Tell the other processes of something that is stored."""
        self._notices.tell(notice)

    def tell_of_step(self, conversation_id: str, seq: int, its_calls: WorkCalls) -> None:
        """Tell the other processes of a step that is stored, and the workers of the calls that it has made."""
        self.tell(StepStored(conversation_id, seq))
        if its_calls:
            self._jobs.tell(conversation_id)

    def note(self, key: OutboxKey, receipt: Receipt) -> None:
        """Store the receipt of a delivery soon. Returns at once."""
        self.database.check_writable()
        self._receipts.add(key, receipt)

    async def flush(self) -> None:
        """Store the receipts so far. Raises `StorageFailed`."""
        await self._receipts.flush()

    def started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that is done although its caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # where the caller was cancelled, nobody asks for it

    async def examine_storage(self) -> tuple[StorageFault, ...]:
        """Return what is wrong with the tables and the clocks, whether workers do the work that waits, and whether the
        index of texts agrees with the logs. Each conversation is read in a transaction of its own."""
        found = await self.database.read(partial(examination.faults, schema=self._jobs.tables.schema))
        if examination.NO_JOBS not in found:
            found += examination.faults_of_jobs(await self._jobs.health(lease=SILENCE))
        found += await self.files.faults()
        for conversation in await self.database.read(search.indexed):
            if not await self.database.read(partial(search.agrees, conversation=conversation)):
                return (*found, search.DIFFERENT)
        return found

    async def repair(self, repairs: Iterable[Repair]) -> None:
        """Make these repairs in one transaction. Raises `StorageFailed`, and `StoreConflict` if a conversation that is
        to be repaired has moved since it was examined; then nothing was repaired."""
        wanted = tuple(repairs)

        def make(driver: PostgresDriver) -> None:
            for each in wanted:
                if isinstance(each, ReplaceHead):
                    _check_newest(driver, each)
                elif isinstance(each, ReplaceDetails):  # its owner may change, and with it the words of the index
                    search.forget(driver, each.conversation_id)
                elif isinstance(each, RebuildIndex):
                    search.drop(driver)
            repair(driver, wanted)

        await self.database.write(make)

    async def close(self) -> None:
        """Store the receipts that wait, tell the others what they have not heard, and close all connections. A second
        call does nothing."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._receipts.close()
        await self._notices.close()
        await self.database.close()


_DELETE = (
    "DELETE FROM conversations WHERE id = %s "
    "RETURNING (SELECT array_agg(file ORDER BY file) FROM file_uses WHERE conversation = conversations.key)"
)


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, psycopg.errors.ForeignKeyViolation)


def _executing(database: PostgresDatabase) -> Execute:
    """Return what executes one statement in a transaction."""

    async def execute(sql: str, parameters: Sequence[Any]) -> None:
        await database.write_once(lambda driver: driver.execute(sql, parameters))

    return execute


def _keep(driver: Driver, conversation_id: str) -> None:
    """Have a conversation stay until the transaction ends. Raises `UnknownConversation`."""
    found = driver.execute("SELECT 1 FROM conversations WHERE id = %s FOR KEY SHARE", (conversation_id,))
    if found.fetchone() is None:
        raise UnknownConversation(conversation_id)


def _check_newest(driver: Driver, repair: ReplaceHead) -> None:
    """Raise `StoreConflict` if the conversation has steps behind those from which its head was computed."""
    key, _ = queries.found(driver, repair.conversation_id)
    driver.execute("SELECT 1 FROM conversations WHERE key = %s FOR UPDATE", (key,))
    if driver.execute("SELECT max(seq) FROM events WHERE conversation = %s", (key,)).fetchone() != (repair.head.seq,):
        raise StoreConflict(f"The conversation {repair.conversation_id} has moved since it was examined.")


class PostgresLog:
    """Implements the port `Log`. Made by `PostgresStore.create` and `PostgresStore.load`."""

    def __init__(self, store: PostgresStore, conversation_id: str, position: LogPosition, work: Work) -> None:
        self._store = store
        self._database = store.database
        self._conversation_id = conversation_id
        self._position = position
        self._work = work
        """What the conversation has to do behind its newest step."""
        self._newest_fence: int | None = None
        """The fence of the newest custody that this process has had of the conversation, as far as was asked for. What
        it has begun to deliver under a custody, it may note when that one is over."""
        self._counted: set[OutboxKey] = set()
        """The deliveries of which an attempt was counted by `begin`, as far as they have not arrived."""
        self._moving = asyncio.Lock()
        """Held while the position may move: each step is linked to the one before it."""

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

        Raises `CustodyLost` if this process had the custody of the conversation, and another one has taken it. A server
        that is gone before it answers a COMMIT may have stored the step. The same step may be appended again; if it is
        found in the log then, it is not stored a second time.
        """
        outgoing = tuple(dict.fromkeys(Outgoing(*target) for target in targets)) if targets else ()
        append = Append(self._position, EncodedStep.of(event, step), outgoing)
        self._database.check_open()
        await asyncio.shield(self._store.started(self._append(append)))

    async def _append(self, append: Append) -> None:
        async with self._moving:
            append.link()
            fence = self._fence()
            its_calls = self._calls_of(append, fence)
            try:
                outcome = await self._store_step(append, fence, its_calls)
            except psycopg.IntegrityError as error:
                raise StoreConflict("The request, or the answer to the effect, is already in the log.") from error
            except StorageFailed:
                self._position.in_doubt = append.chain
                raise
            _check(outcome)
            append.note_stored()
            self._work = _work_behind(append)
            self._store.tell_of_step(self._conversation_id, self._position.seq, its_calls)

    def _calls_of(self, append: Append, fence: int | None) -> WorkCalls:
        """Return the calls for whoever goes on behind a step."""
        before, after = self._work, _work_behind(append)
        begins = (after.waits and not before.waits) or bool(append.outgoing)
        return WorkCalls.of(before, after, now=begins and fence is None)

    async def _store_step(self, append: Append, fence: int | None, its_calls: WorkCalls) -> Outcome:
        """Store a linked step, and call for whoever goes on from there."""
        expression = its_calls.expression(self._store.calls)
        if append.details is None and (expression or not its_calls):
            call = CallingExpression(expression, self._conversation_id) if expression else None
            return await self._database.write_once(lambda driver: store_step(driver, append, fence, call))

        def store(driver: Driver) -> Outcome:
            outcome = store_step(driver, append, fence)
            if outcome == "stored":
                its_calls.make(self._store.calls, driver, self._conversation_id)
            return outcome

        return await self._database.write(store)

    async def request(self, event_id: str) -> StoredEntry | None:
        """Return the step that took the request with this id, or None.

        Raises `UnknownConversation` and `Damaged`.
        """
        where = self._conversation_id, self._position
        return await self._database.read(lambda driver: read_request(driver, *where, event_id))

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """Return the steps that others have stored behind `seq`, and move on to the newest of them.

        Raises `UnknownConversation` and `Damaged`. A caller that is cancelled has not moved on.
        """
        async with self._moving:
            where = self._conversation_id, self._position
            entries, head = await self._database.read_once(lambda driver: read_missed(driver, *where))
            self._position.seq, self._position.chain = head.seq, head.chain
            self._work = Work.of(head)
            return entries

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Remove a delivery that has arrived from the outbox.

        Returns at once. The receipt is stored a moment later, with those of other conversations, and is kept until the
        server takes it. After a crash before that, the delivery is made once more.
        """
        key = self._key(effect_id, target)
        self._counted.discard(key)
        self._store.note(key, Receipt())

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that a delivery has failed `attempts` times and is tried again at `next_attempt`.

        Stored like `acknowledge`, and without effect once the delivery is acknowledged. Once another custody of the
        conversation has begun since this process had one, only the count of `begin` begins again.
        """
        self._fence()
        key, postponement = self._key(effect_id, target), Postponement(attempts, to_microseconds(next_attempt))
        self._store.note(key, Receipt(postponement, self._newest_fence, key in self._counted))

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at a delivery which an earlier process has left, the `begun`-th in a row.

        Returns when it is stored, behind the receipts so far. Raises `StorageFailed`, and `CustodyLost` like `append`.
        """
        self._fence()
        key, fence = self._key(effect_id, target), self._newest_fence
        self._counted.discard(key)

        def begin(driver: Driver) -> None:
            if fence is not None and custody.fences(driver, (key.conversation,)).get(key.conversation, fence) != fence:
                raise CustodyLost(_LOST)
            begin_attempt(driver, key, begun)

        await self._store.flush()
        await self._database.write(begin)
        self._counted.add(key)

    def _fence(self) -> int | None:
        """Return the fence of the custody that this process has of the conversation, None if it has none."""
        taken = self._store.custody_of(self._conversation_id)
        if taken is None:
            return None
        self._newest_fence = taken.fence
        return taken.fence

    def _key(self, effect_id: int, target: str) -> OutboxKey:
        return OutboxKey(self._position.key, target, effect_id, self._position.origin)


_LOST = "Another process looks after the conversation now."


def _check(outcome: Outcome) -> None:
    if outcome == "custody lost":
        raise CustodyLost(_LOST)
    if outcome == "moved on":
        raise StoreConflict("The conversation has moved on, or was deleted, since it was loaded.")


def _work_behind(append: Append) -> Work:
    _, waits, next_timer, _, _, wakes_at = append.encoded.head
    return Work(bool(waits), next_timer, wakes_at)


if TYPE_CHECKING:
    from ..ports import Log, RepairableStorage, SharedStore, Store

    _STORE: type[Store] = PostgresStore
    _REPAIRABLE: type[RepairableStorage] = PostgresStore
    _SHARED: type[SharedStore] = PostgresStore
    _LOG: type[Log] = PostgresLog
