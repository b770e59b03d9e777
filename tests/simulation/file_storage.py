"""turnwise's own store over a real SQLite file, in virtual time.

Everything that turnwise does to store something happens here, too: the writer with its batches, the log, the outbox,
the codec, the SQL. Only the threads are tasks, and statements fail at random, and are no longer done once their process
has died. After each piece of work the file is read; what stands in it is what counts in the simulation, and it is
compared with what the store reports.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection

from turnwise.persistence.codec import EncodedStep, decode, decode_state
from turnwise.persistence.errors import StoreConflict
from turnwise.persistence.maintenance.doctor import examine_record
from turnwise.persistence.records import EventRow, Outgoing, ResetDelivery
from turnwise.persistence.sql import files as sql_files
from turnwise.persistence.sql import queries
from turnwise.persistence.sql.writing import Append, LogPosition
from turnwise.persistence.sqlite.database import Database
from turnwise.persistence.sqlite.file import Address, Mode, configured, connect, driver_of
from turnwise.persistence.sqlite.schema import migrate
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.sqlite.thread import END, ConnectionThread, Start, Worker
from turnwise.persistence.sqlite.writer import Writer, WritingThread
from turnwise.states.context import Context
from turnwise.states.effects import DELIVERY_DEATHS
from turnwise.states.errors import StoreError
from turnwise.states.events import Opened, PolicyChanged, Request, files_of
from turnwise.states.machine import begin, transition
from turnwise.states.policy import Policy
from turnwise.states.states import AnyState

from .disk import Delivered, Disk, Process, Row, disk_time
from .environment import RandomSource, VirtualClock

if TYPE_CHECKING:
    from turnwise.persistence.ports import Log, Store
    from turnwise.states.states import State

    from .disk import Storage
    from .runs import EngineHost

_STATE: TypeAdapter[AnyState] = TypeAdapter(AnyState)

_STEPS = f"SELECT {', '.join(EventRow._fields)} FROM events WHERE conversation = ? AND seq > ? ORDER BY seq"


class FileStorage:
    """A `Storage` in a file of its own, which `close` removes. One process at a time has it open."""

    def __init__(self, disk: Disk, clock: VirtualClock) -> None:
        self.disk = disk
        self.shared: set[str] = set()
        """The conversations that several writers share, one of which may be ahead of another."""
        self.settled: set[Delivered] = set()
        self._clock = clock
        self._folder = TemporaryDirectory(prefix="turnwise-simulation-")
        path = Path(self._folder.name) / "simulated.db"
        path.write_bytes(_empty_database())
        self._address = Address.of(path)
        self._file = connect(self._address, "ro", 0)
        self._outbox: set[Delivered] = set()
        self._writer_name = ""

    # --- one process after the other

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        chance, statements = self.disk.chance, Statements(self.disk.chance)
        begin = partial(self._begin, statements)
        reader = ConnectionThread(Worker("The file"), start=served_by_task(chance))
        worker = _ObservedWriter(self._clock.monotonic, statements, begin, self._look)
        writer = WritingThread(worker, start=served_by_task(chance, begin, self._look))
        await writer.open(partial(self._open, "rw", statements))
        await reader.open(partial(self._open, "ro", None))
        self._writer_name = name
        return FileProcess(name, SqliteStore(_CheckedDatabase(self, reader, writer)), statements)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        self._folder.cleanup()

    def _open(self, mode: Mode, statements: Statements | None, undo: ExitStack) -> Connection:
        assert self._address.path is not None
        target = f"{self._address.path.as_uri()}?mode={mode}"
        driver = sqlite3.connect(target, isolation_level=None, uri=True, factory=Driver)
        undo.enter_context(closing(driver))
        connection = undo.enter_context(configured(driver, mode))
        driver.execute("PRAGMA synchronous = OFF")  # processes die here, machines do not
        driver.statements = statements
        return connection

    # --- what the file holds

    def _begin(self, statements: Statements) -> None:
        statements.failing = self.disk.failing
        statements.begin_batch()

    def _look(self) -> None:
        """Read what was added to the file."""
        found = self._file.execute("SELECT key, id, seq FROM conversations ORDER BY key").fetchall()
        for conversation_id in sorted(self.disk.rows.keys() - {conversation_id for _, conversation_id, _ in found}):
            self.disk.delete(conversation_id)
        for key, conversation_id, seq in found:
            known = len(self.disk.rows.get(conversation_id, ()))
            if seq != known:
                self._read(key, conversation_id, known)
        outbox = self.outbox()
        self.settled |= self._outbox.difference(outbox)
        self._outbox = set(outbox)

    def _read(self, key: int, conversation_id: str, known: int) -> None:
        steps = self._file.execute(_STEPS, (key, known)).fetchall()
        (state,) = self._file.execute("SELECT state FROM conversations WHERE key = ?", (key,)).fetchone()
        if len(steps) != 1:
            self.disk.trace.report_fault(f"{conversation_id} has {len(steps)} new steps behind step {known}")
            return
        entry = decode(EventRow._make(steps[0]))
        for file in files_of(entry.event):
            if file.sha256 and sql_files.find_used(self._file, conversation_id, file.sha256) is None:
                self.disk.trace.report_fault(
                    f"step {entry.seq} of {conversation_id} refers to a file that is not there"
                )
        self.disk.keep(conversation_id, Row.of(entry, _STATE.validate_json(state), self._writer_name))

    def outbox(self) -> tuple[Delivered, ...]:
        """What is still to be delivered."""
        sql = (
            "SELECT id, target, effect_id FROM outbox JOIN conversations ON key = conversation"
            " ORDER BY key, target, outbox.seq, effect_id"
        )
        return tuple(self._file.execute(sql).fetchall())

    def left_out(self) -> tuple[Delivered, ...]:
        """What of it is tried no more."""
        sql = "SELECT id, target, effect_id FROM outbox JOIN conversations ON key = conversation WHERE begun >= ?"
        return tuple(self._file.execute(sql, (DELIVERY_DEATHS,)).fetchall())

    def check_stored(self, key: int, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        """A step that is reported as stored stands in the file, byte for byte, with its deliveries."""
        if self._file.execute("SELECT id FROM conversations WHERE key = ?", (key,)).fetchone() is None:
            return  # deleted meanwhile
        row = self._file.execute(_STEPS, (key, step.row.seq - 1)).fetchone()
        if row is None or row[:-1] != step.row[:-1]:
            self.disk.trace.report_fault(f"{step.row.type} is reported as stored as step {step.row.seq}, and is not")
        sql = "SELECT effect_id, target FROM outbox WHERE conversation = ? AND seq = ?"
        if not set(outgoing) <= {tuple(sent) for sent in self._file.execute(sql, (key, step.row.seq))}:
            self.disk.trace.report_fault(f"step {step.row.seq} is stored without its deliveries")

    def check_conflict(self, position: LogPosition, step: EncodedStep) -> None:
        """A step that was refused as a conflict does conflict with what another writer has stored."""
        sql = "SELECT id, chain FROM conversations WHERE key = ?"
        stored = self._file.execute(sql, (position.key,)).fetchone()
        if stored is None:
            return  # deleted meanwhile
        conversation_id, chain = stored
        id_ = step.row.effect_id if step.row.event_id is None else step.row.event_id
        is_repeated = id_ in self.disk.identities[conversation_id]
        if not is_repeated and (conversation_id not in self.shared or chain == position.chain):
            fault = f"{step.row.type}, step {step.row.seq} of {conversation_id}, was refused as a conflict"
            self.disk.trace.report_fault(fault)

    def faults(self) -> Iterator[str]:
        """What is wrong with the file: whatever the doctor finds, and each log that is not what was seen growing."""
        with closing(connect(self._address, "ro", 0)) as file, configured(file, "ro") as connection:
            for (conversation_id,) in file.execute("SELECT id FROM conversations").fetchall():
                for fault in self._faults_of(connection, conversation_id):
                    yield f"{conversation_id} in the file: {fault}"

    def _faults_of(self, connection: Connection, conversation_id: str) -> Iterator[str]:
        record = queries.read_record(driver_of(connection), conversation_id)
        left_out = {ResetDelivery(*delivered) for delivered in self.left_out()}
        findings = [one for one in examine_record(record).findings if one.repair not in left_out]
        if findings:
            yield from (finding.sentence for finding in findings)
            return
        entries = tuple(map(decode, record.steps))
        seen = self.disk.rows.get(conversation_id, [])
        if [(row.event, row.effects, row.ended) for row in seen] != [(e.event, e.effects, e.ended) for e in entries]:
            yield "other steps than those that were seen to be stored"
        elif decode_state(record.head) != seen[-1].state:
            yield "another state than the one that was seen to be stored"
        for digest in {file.sha256 for entry in entries for file in files_of(entry.event) if file.sha256}:
            if sql_files.find_used(driver_of(connection), conversation_id, digest) is None:
                yield f"the file {digest}, to which it refers, is not there"


if TYPE_CHECKING:
    _STORAGE: type[Storage] = FileStorage


@cache
def _empty_database() -> bytes:
    """A database with all its tables and nothing in them."""
    with closing(connect(Address.of(":memory:"), "rw", 0)) as memory, configured(memory, "rw") as connection:
        migrate(connection, None)
        return memory.serialize()


class _ObservedWriter(Writer):
    """A writer that calls `before` and `after` around what it commits inline, as its thread does around the rest."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        statements: Statements,
        before: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        super().__init__("The file", monotonic)
        self._statements = statements
        self._before = before
        self._after = after

    def commit_inline(self, step: Append) -> bool:
        """Store a step inline, if that is possible, and look at the file."""
        return self._observe(partial(super().commit_inline, step))

    def commit_queued(self) -> bool:
        """Store the steps that wait inline, if that is possible, and look at the file."""
        return self._observe(super().commit_queued)

    def _observe(self, commit: Callable[[], bool]) -> bool:
        """Call `commit`. What it does not store is tried again by the thread, in the same batch."""
        self._before()
        try:
            stored = commit()
        finally:
            self._after()
        if not stored:
            self._statements.go_on()
        return stored


class _CheckedDatabase(Database):
    """A database whose reports are compared with its file."""

    def __init__(self, storage: FileStorage, reader: ConnectionThread, writer: WritingThread) -> None:
        super().__init__(Address("The file"), reader, writer)
        self._storage = storage

    def append(self, step: Append) -> Coroutine[Any, Any, None]:
        """Store a step, and look whether it stands in the file."""
        return self._append(step)

    async def _append(self, step: Append) -> None:
        try:
            stored = super().append(step)
            if stored is not None:
                await stored
        except StoreConflict:
            self._storage.check_conflict(step.position, step.encoded)
            raise
        self._storage.check_stored(step.position.key, step.encoded, step.outgoing)


class FileProcess:
    """A process that has the file open: a `Process`."""

    def __init__(self, name: str, store: Store, statements: Statements) -> None:
        self.name = name
        self.store = store
        self._statements = statements

    @property
    def is_dead(self) -> bool:
        """Whether the process has died."""
        return self._statements.is_dead

    def die_after(self, statements: int) -> None:
        """Have the process die after so many more statements that write, in the middle of a transaction or not."""
        left = self._statements.left
        self._statements.left = statements if left is None else min(left, statements)


T = TypeVar("T")

_CODES = {"BEGIN IMMEDIATE": sqlite3.SQLITE_BUSY, "COMMIT": sqlite3.SQLITE_IOERR}
"""What a statement fails with; any other fails because the disk is full."""


class Statements:
    """Decides what becomes of the statements of one process. `failing` is the probability that one fails; `left` counts
    those that are still done before the process dies, None if it does not.

    At most once in all that is done for one batch, a commit is done and reported as failed, as disks do. What is stored
    then is found when it is tried again.
    """

    def __init__(self, chance: RandomSource) -> None:
        self.failing = 0.0
        self.left: int | None = None
        self._chance = chance
        self._may_misreport = self._is_reliable = self._goes_on = False

    @property
    def is_dead(self) -> bool:
        """Whether no statement is done any more."""
        return self.left == 0

    def begin_batch(self) -> None:
        """Another batch begins, unless the one before goes on."""
        if not self._goes_on:
            self._may_misreport, self._is_reliable = True, False
        self._goes_on = False

    def go_on(self) -> None:
        """What comes next belongs to the same batch: it is tried again."""
        self._goes_on = True

    def decide(self, sql: str, statement: Callable[[], T]) -> T:
        """Do a statement that writes, or fail."""
        if self.left is not None:
            if self.left == 0:
                raise failed(sqlite3.SQLITE_IOERR)
            self.left -= 1
        if sql == "ROLLBACK":
            self._may_misreport = False
        elif not self._is_reliable and self._chance.probably(self.failing):
            if sql == "COMMIT" and self._may_misreport and self._chance.probably(0.5):
                self._is_reliable = True
                statement()
            self._may_misreport = False
            raise failed(_CODES.get(sql, sqlite3.SQLITE_FULL))
        return statement()


class Driver(sqlite3.Connection):
    """A connection whose writing statements `statements` decides about; without it, one like any other."""

    statements: Statements | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Do a statement, or fail."""
        execute = super().execute
        if self.statements is None or not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            return execute(sql, *parameters)
        return self.statements.decide(sql, lambda: execute(sql, *parameters))

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Do a statement many times, or fail."""
        executemany = super().executemany
        if self.statements is None:
            return executemany(sql, parameters)
        return self.statements.decide(sql, lambda: executemany(sql, parameters))


def failed(code: int) -> sqlite3.OperationalError:
    """An error as SQLite's driver raises it."""
    error = sqlite3.OperationalError("the disk is in trouble")
    error.sqlite_errorcode = code
    return error


class VirtualQueue:
    """A queue whose reader does not block a thread: it awaits `arrived`."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self._signal = asyncio.Event()

    def put(self, item: Any) -> None:
        """Put an item in."""
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        """Have the reader look whether there is something to do."""
        self._signal.set()

    async def arrived(self, timeout: float | None) -> None:
        """Return when there is an item, or a reason to look, or the time is over."""
        self._signal.clear()
        if not self.items:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signal.wait(), timeout)


def served_by_task(
    chance: RandomSource, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> Start:
    """Return what starts a task that serves a worker. `before` and `after` are called around each piece of work.

    The task takes the place of a thread of a store. It takes its time before it does anything, so that more is handed
    in meanwhile and stored together, as with a real disk.
    """

    def start(worker: Worker) -> Callable[[], None]:
        queue: Any = VirtualQueue()
        worker.queue = queue
        serving = asyncio.ensure_future(_serve(worker, queue, chance, before, after))
        return lambda: None if serving.done() else queue.put(END)

    return start


async def _serve(
    worker: Worker, queue: VirtualQueue, chance: RandomSource, before: Callable[[], None], after: Callable[[], None]
) -> None:
    ended = False
    while not ended:
        if not queue.items:
            worker.handle_next()  # receipts may be due
            after()
            await queue.arrived(worker.pause)
            continue
        await disk_time(chance)
        before()
        ended = worker.handle_next()
        worker.report()
        after()


class OtherConversation:
    """A writer of the conversation `conversation_id`.

    It stands in the same database, so that a writer has several steps to store at once. It takes nothing but new
    policies, and is written without an engine. Two writers may share a conversation: the one that is behind reads it
    again.
    """

    def __init__(self, name: str, conversation_id: str, chance: RandomSource, clock: VirtualClock, disk: Disk) -> None:
        self.name = name
        self.conversation_id = conversation_id
        self._chance = chance
        self._clock = clock
        self._disk = disk
        self._count = 0
        self._appended: str | None = None
        """The id of the step that was appended last in this attempt, None before the first."""
        self._process: Process
        self._log: Log | None = None
        self._state: State

    async def create(self, process: Process) -> None:
        """Create the conversation."""
        opened = Opened(event_id=f"{self.conversation_id} opened", at=self._clock.now(), policy=Policy())
        await process.store.create(self.conversation_id, opened, begin(opened))

    async def write(self, host: EngineHost, attempts: int) -> None:
        """Try so often to store some steps, through the newest process of the host."""
        for _ in range(attempts):
            await asyncio.sleep(self._chance.pick((0.0, self._chance.seconds())))
            try:
                await self._store_steps(host.process, self._chance.number(1, 3))
            except StoreError:
                self._log = None
                self._check_refusal()

    async def _store_steps(self, process: Process, steps: int) -> None:
        """Go on from where the conversation stands, as far as that is known."""
        self._appended = None
        log = await self._read(process)
        for _ in range(steps):
            self._count += 1
            event = PolicyChanged(event_id=f"{self.name}-{self._count}", at=self._clock.now(), policy=Policy())
            step = transition(self._state, event, Context())
            self._appended = event.event_id
            await log.append(event, step)
            self._state = step.state

    async def _read(self, process: Process) -> Log:
        if self._log is None or self._process is not process:
            self._process = process
            loaded = await process.store.load(self.conversation_id)
            self._log, self._state = loaded.log, loaded.state
        return self._log

    def _check_refusal(self) -> None:
        """What is reported as not stored is not stored; what a dead process reports does not count."""
        rows = self._disk.rows[self.conversation_id]
        stored = {row.event.event_id for row in rows if isinstance(row.event, Request)}
        if self._appended in stored and not self._process.is_dead:
            self._disk.trace.report_fault(f"{self._appended} is reported as not stored, and is stored")
