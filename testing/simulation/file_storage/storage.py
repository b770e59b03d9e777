"""turnwise's own store over a real SQLite file, in virtual time.

Everything that turnwise does to store something happens here, too: the writer with its batches, the log, the outbox,
the codec, the SQL. Only the threads are tasks, and statements fail. After each piece of work the file is read; what
stands in it is what counts in the simulation, and it is compared with what the store reports.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from ....persistence.codec import EncodedStep, decode, decode_state
from ....persistence.errors import StoreConflict
from ....persistence.maintenance.doctor import examine_record
from ....persistence.records import EventRow, Outgoing
from ....persistence.sqlite import queries
from ....persistence.sqlite.database import Database
from ....persistence.sqlite.file import Address, Mode, configured, connect
from ....persistence.sqlite.schema import migrate
from ....persistence.sqlite.store import SqliteStore
from ....persistence.sqlite.thread import ConnectionThread, Worker
from ....persistence.sqlite.writer import Append, LogPosition, Writer, WritingThread
from ..environment.clock import VirtualClock
from ..storage.disk import Disk, Row
from ..storage.storage import Delivered
from .driver import Driver, Statements
from .virtual_thread import served_by_task

if TYPE_CHECKING:
    from ....persistence.ports import Store
    from ..storage.storage import Process, Storage

_STEPS = f"SELECT {', '.join(EventRow._fields)} FROM events WHERE conversation = ? AND seq > ? ORDER BY seq"


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
        self.disk.keep(conversation_id, Row.read(decode(EventRow._make(steps[0])), state, self._writer_name))

    def outbox(self) -> tuple[Delivered, ...]:
        """What is still to be delivered."""
        sql = (
            "SELECT id, target, effect_id FROM outbox JOIN conversations ON key = conversation"
            " ORDER BY key, target, outbox.seq, effect_id"
        )
        return tuple(self._file.execute(sql).fetchall())

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
        stored = self._file.execute(sql, (position.head.key,)).fetchone()
        if stored is None:
            return  # deleted meanwhile
        conversation_id, chain = stored
        id_ = step.row.effect_id if step.row.event_id is None else step.row.event_id
        is_repeated = id_ in self.disk.identities[conversation_id]
        if not is_repeated and (conversation_id not in self.shared or chain == position.head.chain):
            fault = f"{step.row.type}, step {step.row.seq} of {conversation_id}, was refused as a conflict"
            self.disk.trace.report_fault(fault)

    def faults(self) -> Iterator[str]:
        """What is wrong with the file: whatever the doctor finds, and each log that is not what was seen growing."""
        with closing(connect(self._address, "ro", 0)) as file, configured(file, "ro") as connection:
            for (conversation_id,) in file.execute("SELECT id FROM conversations").fetchall():
                for fault in self._faults_of(connection, conversation_id):
                    yield f"{conversation_id} in the file: {fault}"

    def _faults_of(self, connection: Connection, conversation_id: str) -> Iterator[str]:
        record = queries.read_record(connection, conversation_id)
        findings = examine_record(record).findings
        if findings:
            yield from (finding.sentence for finding in findings)
            return
        entries = tuple(map(decode, record.steps))
        seen = self.disk.rows.get(conversation_id, [])
        if [(row.event, row.effects, row.ended) for row in seen] != [(e.event, e.effects, e.ended) for e in entries]:
            yield "other steps than those that were seen to be stored"
        elif decode_state(record.head) != seen[-1].state:
            yield "another state than the one that was seen to be stored"


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
        self._storage.check_stored(step.position.head.key, step.encoded, step.outgoing)


@cache
def _empty_database() -> bytes:
    """A database with all its tables and nothing in them."""
    with closing(connect(Address.of(":memory:"), "rw", 0)) as memory, configured(memory, "rw") as connection:
        migrate(connection, None)
        return memory.serialize()


if TYPE_CHECKING:
    _STORAGE: type[Storage] = FileStorage
