"""A store in memory, which takes its time and fails at bad moments.

It does what a real one promises: a step is stored whole or not at all, and only if it follows the newest one. Several
processes may have it open at once. What an engine must never try is reported as a fault at once, whatever would come of
it later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ....states.context import Context
from ....states.effects import AwaitedEffect
from ....states.errors import StoreError, UnknownConversation
from ....states.events import Event, Opened, Request
from ....states.states import AnyState, AwaitingUserResponse
from ....states.step import Step
from ..environment.random_source import RandomSource
from .disk import Disk, Row, identity
from .storage import Delivered

if TYPE_CHECKING:
    from ....persistence.errors import StorageFailed, StoreConflict
    from ....persistence.ports import LoadedConversation, Log, Store
    from ....persistence.records.conversation_record import ConversationRecord
    from ....persistence.records.entry import StoredEntry
    from ....persistence.records.outbox import Undelivered
    from ....persistence.records.summary import Summary
    from .storage import Process, Storage

MISREPORTED = 0.2
"""How many of the failed attempts to store an answer have stored it all the same."""


class MemoryLog:
    """The log of one conversation, open at its end in one process: a `Log`."""

    def __init__(self, store: MemoryStore, conversation_id: str) -> None:
        self._store = store
        self._disk = store.disk
        self._id = conversation_id
        self._seq = len(self._rows)
        self._is_writing = False
        self._misreported: Row | None = None
        """The step that was stored although its attempt failed."""

    @property
    def _rows(self) -> list[Row]:
        return self._disk.rows[self._id]

    @property
    def seq(self) -> int:
        """The newest step that this log knows of."""
        return self._seq

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step. Raises `StorageFailed` at random, and `StoreConflict` where a real store does."""
        self._check_use(event, step)
        self._is_writing = True
        try:
            await disk_time(self._disk.chance)
            self._store.check_alive()
            self._add(event, step)
            await disk_time(self._disk.chance)
        finally:
            self._is_writing = False

    def _add(self, event: Event, step: Step) -> None:
        chance, disk = self._disk.chance, self._disk
        if not self._was_stored(event, step):
            if len(self._rows) != self._seq or identity(event) in disk.identities[self._id] - {None}:
                raise _conflict()
            fails = chance.probably(disk.failing)
            if fails and (isinstance(event, Request) or not chance.probably(MISREPORTED)):
                disk.trace.record("store", f"{self._store.name} fails to store {event.type}")
                raise _failed()
            row = self._store.add(self._id, event, step)
            if fails:
                disk.trace.record("store", f"{self._store.name} stored {event.type} and reports a failure")
                self._misreported = row
                raise _failed()
        self._seq += 1

    def _was_stored(self, event: Event, step: Step) -> bool:
        """Whether an attempt of this log has stored the step although it failed."""
        row, self._misreported = self._misreported, None
        stored = None if row is None else (row.seq, row.event, row.effects, row.state)
        return stored == (self._seq + 1, event, step.effects, step.state)

    def _check_use(self, event: Event, step: Step) -> None:
        if not self._store.is_open and not self._store.is_dead:
            self._report(f"{event.type} is to be stored after the store was closed")
        elif self._is_writing:
            self._report(f"{event.type} is to be stored while another step is being stored")
        elif step.state.book.seq != self._seq + 1:
            self._report(f"step {step.state.book.seq} is to be stored behind step {self._seq}")

    def _report(self, fault: str) -> None:
        self._disk.trace.report_fault(fault)
        raise _conflict()

    async def request(self, event_id: str) -> StoredEntry | None:
        """The step that took the request with this id, or None."""
        await disk_time(self._disk.chance)
        self._store.check_alive()
        took = (row for row in self._rows if isinstance(row.event, Request) and row.event.event_id == event_id)
        row = next(took, None)
        return None if row is None else row.entry

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """The steps that others have stored behind `seq`."""
        await disk_time(self._disk.chance)
        self._store.check_alive()
        missed = tuple(row.entry for row in self._rows[self._seq :])
        self._seq = len(self._rows)
        return missed

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Nothing: a simulation in memory has no outbox."""

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Nothing: a simulation in memory has no outbox."""


class MemoryStore:
    """The disk as one process has it open: a `Store`, and the `Process` itself."""

    def __init__(self, disk: Disk, name: str, storage: MemoryStorage) -> None:
        self.disk = disk
        self.is_open = True
        self.is_dead = False
        self._name = name
        self._storage = storage
        self._claimed: set[str] = set()

    # --- the process

    @property
    def name(self) -> str:
        """The name of the process."""
        return self._name

    @property
    def store(self) -> Store:
        """Itself."""
        return self

    def die_after(self, statements: int) -> None:
        """Have the process die: nothing is done in parts here, so at once."""
        self.is_dead = True

    def check_alive(self) -> None:
        """Raise `StoreError` if the store is closed or the process has died."""
        if self.is_dead:
            raise _failed()
        if not self.is_open:
            raise StoreError("The store is closed.")

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        """Store a new conversation."""
        self.add(conversation_id, event, step)
        return MemoryLog(self, conversation_id)

    def add(self, conversation_id: str, event: Event, step: Step) -> Row:
        """Store a step."""
        try:
            return self.disk.add(conversation_id, event, step, self._name)
        except ValueError as error:
            self.disk.trace.report_fault(f"{event.type} cannot be stored: {error}")
            raise

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation as it was left."""
        from ....persistence.ports import LoadedConversation

        await self._read(conversation_id)
        context = Context()
        for row in self.disk.rows[conversation_id]:
            context = context.after(row.event)
        log = MemoryLog(self, conversation_id)
        return LoadedConversation(log, self.disk.head(conversation_id), context)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """The steps behind the step `after`, up to the step `up_to`."""
        await self._read(conversation_id)
        return tuple(row.entry for row in self.disk.rows[conversation_id][after:up_to])

    async def _read(self, conversation_id: str) -> None:
        self.check_alive()
        if conversation_id not in self.disk.rows:
            raise UnknownConversation(conversation_id)
        await disk_time(self.disk.chance)

    async def delete(self, conversation_id: str) -> None:
        """Raises NotImplementedError: nobody deletes a conversation in a simulation."""
        raise NotImplementedError

    # --- many conversations

    async def claim(self, limit: int) -> tuple[str, ...]:
        """The conversations that nobody drives: what they have in flight was begun by a process that is gone."""
        waiting = [id_ for id_ in self.disk.rows if id_ not in self._claimed and self._storage.is_abandoned(id_)]
        self._claimed.update(waiting[:limit])
        return tuple(waiting[:limit])

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Let these conversations be claimed again."""
        self._claimed.difference_update(conversation_ids)

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Nothing: a simulation in memory has no outbox."""
        return ()

    async def list(
        self,
        *,
        owner: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> tuple[Summary, ...]:
        """Raises NotImplementedError: nobody lists conversations in a simulation."""
        raise NotImplementedError

    # --- raw records

    async def ids(self, prefix: str = "") -> tuple[str, ...]:
        """The ids of all conversations that begin with `prefix`."""
        return tuple(each for each in self.disk.rows if each.startswith(prefix))

    async def read_record(self, conversation_id: str) -> ConversationRecord:
        """Raises NotImplementedError: rows in memory have no records."""
        raise NotImplementedError

    async def write_records(self, records: Iterable[ConversationRecord]) -> None:
        """Raises NotImplementedError: rows in memory have no records."""
        raise NotImplementedError

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Raises NotImplementedError: rows in memory have no records."""
        raise NotImplementedError

    async def close(self) -> None:
        """Store nothing more."""
        self.is_open = False


class MemoryStorage:
    """A `Storage` in memory."""

    def __init__(self, disk: Disk) -> None:
        self.settled: set[Delivered] = set()
        self._disk = disk
        self._processes: dict[str, MemoryStore] = {}

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        process = self._processes[name] = MemoryStore(self._disk, name, self)
        return process

    def is_abandoned(self, conversation_id: str) -> bool:
        """Whether something is in flight, or waits for a person, that a process has begun which is closed or dead."""
        rows = self._disk.rows[conversation_id]
        begun = {one.effect_id: row.writer for row in rows for one in row.effects if isinstance(one, AwaitedEffect)}
        state: AnyState = rows[-1].state
        waiting = state.round.running if isinstance(state, AwaitingUserResponse) else ()
        under_way = (*state.in_flight(), *(call.effect_id for call in waiting))
        processes = [self._processes[begun[effect_id]] for effect_id in under_way]
        return any(process.is_dead or not process.is_open for process in processes)

    def outbox(self) -> tuple[Delivered, ...]:
        """Nothing: a simulation in memory has no outbox."""
        return ()

    def faults(self) -> tuple[str, ...]:
        """Nothing: there is no file that could be wrong."""
        return ()

    def close(self) -> None:
        """Nothing: there is nothing to remove."""


async def disk_time(chance: RandomSource) -> None:
    """The time that a disk takes: often none, not even another task's turn."""
    if chance.probably(0.5):
        await asyncio.sleep(chance.pick((0.0, 0.0, 0.001, 0.02, 1.0)))


def _failed() -> StorageFailed:
    from ....persistence.errors import StorageFailed

    return StorageFailed("The disk is full.")


def _conflict() -> StoreConflict:
    from ....persistence.errors import StoreConflict

    return StoreConflict("The step does not follow the newest step of its conversation.")


if TYPE_CHECKING:
    _STORAGE: type[Storage] = MemoryStorage
