"""The real store over a real SQLite file, in virtual time.

All that turnwise does to store something happens here too: the writer with its batches, the log, the outbox, the codec,
the SQL. Only the threads are tasks, and the connection has a fate. After each piece of work the file is read, and what
stands there is what counts in the simulation: it is compared with what the store says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection

from ....persistence.errors import StoreConflict
from ....persistence.maintenance.doctor import examine_record
from ....persistence.records.codec import EncodedStep, decode, decode_state
from ....persistence.records.outbox import Outgoing
from ....persistence.records.rows import EventRow
from ....persistence.sqlite import record_tables
from ....persistence.sqlite.address import Address
from ....persistence.sqlite.connection import Mode, configured, connect
from ....persistence.sqlite.database import Database
from ....persistence.sqlite.log_position import LogPosition
from ....persistence.sqlite.migrate import migrate
from ....persistence.sqlite.store import SqliteStore
from ....persistence.sqlite.thread import Worker
from ....persistence.sqlite.writer import Writer
from ..channels import Sent
from ..clock import VirtualClock
from ..disk import Disk, Row
from .driver import Driver, Fate
from .virtual_thread import Served, ServedWriting

_NAMED = "SELECT seq FROM events WHERE conversation = ? AND event_id = ?"
_STEPS = f"SELECT {', '.join(EventRow._fields)} FROM events WHERE conversation = ? AND seq > ? ORDER BY seq"


class FileStorage:
    """A `Storage` in a file of its own, which `close` removes. `writer` is the type of the half of the writing thread
    that stores: turnwise's own, or a subclass of it."""

    def __init__(self, disk: Disk, clock: VirtualClock, writer: type[Writer] = Writer) -> None:
        self.disk = disk
        self.shared: set[str] = set()
        """The conversations that several write to, who may outrun each other."""
        self.settled: set[Sent] = set()
        self._writer = writer
        self._clock = clock
        self._folder = TemporaryDirectory(prefix="turnwise-simulation-")
        path = Path(self._folder.name) / "simulated.db"
        path.write_bytes(_empty())
        self._address = Address.of(path)
        self.fate = Fate(disk.dice)
        """What becomes of the process whose store was opened last."""
        self._sight = connect(self._address, "ro", 0)
        self._outbox: set[Sent] = set()

    # --- one process after the other

    async def open(self) -> SqliteStore:
        """The store of the next process."""
        fate = self.fate = Fate(self.disk.dice)
        reader = Served(Worker("The file"), self.disk.dice, lambda: None, lambda: None)
        writer = ServedWriting(self._writer("The file", self._clock.monotonic), self.disk.dice, self._begin, self._look)
        await writer.open(partial(self._open, "rw", fate))
        await reader.open(partial(self._open, "ro", None))
        return SqliteStore(_Watched(self, reader, writer))

    @property
    def is_dead(self) -> bool:
        """Whether the process of the store that was opened last is dead."""
        return self.fate.is_dead

    def die_after(self, statements: int) -> None:
        """The process dies behind so many more statements that write, in the middle of a transaction or not."""
        lives = self.fate.lives
        self.fate.lives = statements if lives is None else min(lives, statements)

    def close(self) -> None:
        """Remove the file."""
        self._sight.close()
        self._folder.cleanup()

    def _open(self, mode: Mode, fate: Fate | None, undo: ExitStack) -> Connection:
        assert self._address.path is not None
        target = f"{self._address.path.as_uri()}?mode={mode}"
        driver = sqlite3.connect(target, isolation_level=None, uri=True, factory=Driver)
        undo.enter_context(closing(driver))
        connection = undo.enter_context(configured(driver, mode))
        driver.execute("PRAGMA synchronous = OFF")  # processes die here, machines do not
        driver.fate = fate
        return connection

    # --- what the file holds

    def _begin(self) -> None:
        self.fate.failing = self.disk.failing
        self.fate.begin()

    def _look(self) -> None:
        """Read what came to stand in the file."""
        found = self._sight.execute("SELECT key, id, seq FROM conversations ORDER BY key").fetchall()
        for key, conversation_id, seq in found:
            known = len(self.disk.rows.get(conversation_id, ()))
            if seq != known:
                self._read(key, conversation_id, known)
        outbox = self.outbox()
        self.settled |= self._outbox.difference(outbox)
        self._outbox = set(outbox)

    def _read(self, key: int, conversation_id: str, known: int) -> None:
        steps = self._sight.execute(_STEPS, (key, known)).fetchall()
        (state,) = self._sight.execute("SELECT state FROM conversations WHERE key = ?", (key,)).fetchone()
        if len(steps) != 1:
            self.disk.story.blame(f"at once {conversation_id} has {len(steps)} steps behind step {known}")
            return
        self.disk.keep(conversation_id, Row.read(decode(EventRow._make(steps[0])), state))

    def outbox(self) -> tuple[Sent, ...]:
        """What is still to be delivered."""
        sql = (
            "SELECT id, target, effect_id FROM outbox JOIN conversations ON key = conversation"
            " ORDER BY key, target, outbox.seq, effect_id"
        )
        return tuple(self._sight.execute(sql).fetchall())

    def check_stored(self, key: int, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        """A step that was said to be stored stands in the file, to the letter, with all that goes out with it."""
        row = self._sight.execute(_STEPS, (key, step.row.seq - 1)).fetchone()
        if row is None or row[:-1] != step.row[:-1]:
            self.disk.story.blame(f"{step.row.type} was said to be stored as step {step.row.seq}, and is not")
        sql = "SELECT effect_id, target FROM outbox WHERE conversation = ? AND seq = ?"
        if not set(outgoing) <= {tuple(sent) for sent in self._sight.execute(sql, (key, step.row.seq))}:
            self.disk.story.blame(f"step {step.row.seq} was stored without what goes out with it")

    def check_outrun(self, position: LogPosition, step: EncodedStep) -> None:
        """A step that was refused as outrun was outrun by somebody who may, or is a request that was taken before."""
        if (
            step.row.event_id is not None
            and self._sight.execute(_NAMED, (position.head.key, step.row.event_id)).fetchone()
        ):
            return
        sql = "SELECT id, chain FROM conversations WHERE key = ?"
        conversation_id, chain = self._sight.execute(sql, (position.head.key,)).fetchone()
        if conversation_id not in self.shared or chain == position.head.chain:
            self.disk.story.blame(f"{step.row.type}, step {step.row.seq} of {conversation_id}, was refused as outrun")

    def faults(self) -> Iterator[str]:
        """What is wrong with the file in the end: the doctor finds nothing, and each log is what was seen growing."""
        with closing(connect(self._address, "ro", 0)) as file, configured(file, "ro") as connection:
            for (conversation_id,) in file.execute("SELECT id FROM conversations").fetchall():
                for fault in self._faults_of(connection, conversation_id):
                    yield f"{conversation_id} in the file: {fault}"

    def _faults_of(self, connection: Connection, conversation_id: str) -> Iterator[str]:
        record = record_tables.read_record(connection, conversation_id)
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


class _Watched(Database):
    """A database whose word is checked."""

    def __init__(self, storage: FileStorage, reader: Any, writer: Any) -> None:
        super().__init__(Address("The file"), reader, writer)
        self._storage = storage

    async def append(self, position: LogPosition, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        try:
            await super().append(position, step, outgoing)
        except StoreConflict:
            self._storage.check_outrun(position, step)
            raise
        self._storage.check_stored(position.head.key, step, outgoing)


@cache
def _empty() -> bytes:
    """A database with all its tables and nothing in them."""
    with closing(connect(Address.of(":memory:"), "rw", 0)) as memory, configured(memory, "rw") as connection:
        migrate(connection, None)
        return memory.serialize()
