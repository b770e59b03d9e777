"""A store in memory that takes its time and fails at bad moments: the one of examples/memory_store.py, with faults.

Several processes may have the store open at once. What an engine must never try is reported as a fault at once,
whatever would come of it later. As in a store of turnwise, a receipt is stored with the next step of its process, or a
while later, or when the store is closed. A process that dies before has handed something over that is still in the
outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from turnwise.persistence.errors import StorageFailed, StoreConflict
from turnwise.persistence.ports import Files, LoadedConversation, Log, Store
from turnwise.persistence.records import KeptFile, StoredEntry, Undelivered
from turnwise.states.effects import DELIVERY_DEATHS, AwaitedEffect
from turnwise.states.errors import StoreError
from turnwise.states.events import Event, Opened, Request, files_of
from turnwise.states.states import AnyState, AwaitingUserResponse
from turnwise.states.step import Step

from ..support.scenarios.examples import example
from .disk import Delivered, Disk, Process, Row, Storage, disk_time, identity

LATEST_RECEIPTS = (0.1, 1.0, 10.0)
"""Seconds after which a receipt is stored at the latest."""

MISREPORTED = 0.2
"""How many of the failed attempts to store an answer have stored it all the same."""

T = TypeVar("T")


class FaultyStorage:
    """A `Storage` in memory."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.store: Store = example("memory_store").MemoryStore()
        self.settled: set[Delivered] = set()
        """What was taken out of the outbox."""
        self.processes: dict[str, FaultyStore] = {}
        self._senders: dict[Delivered, str] = {}
        """The processes that have put something into the outbox, by name."""

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        process = self.processes[name] = FaultyStore(self, name)
        return process

    def add(
        self, conversation_id: str, given: tuple[Event, Step], writer: str, targets: Iterable[tuple[int, str]]
    ) -> Row:
        """Read the step that a process has stored last, and compare it with what it was given."""
        (entry,) = at_once(self.store.entries(conversation_id, given[1].state.book.seq - 1))
        row = Row.of(entry, at_once(self.store.load(conversation_id)).state, writer)
        event, step = given
        if (row.event, row.effects, row.ended, row.state) != (event, step.effects, step.ended, step.state):
            self.disk.trace.report_fault(
                f"step {row.seq}, {event.type}, is not read as it was written: {row.text[:300]}"
            )
        for file in files_of(event):
            if file.sha256 and at_once(self.store.files.read(conversation_id, file.sha256, 0, 0)) is None:
                self.disk.trace.report_fault(f"step {row.seq}, {event.type}, refers to a file that is not there")
        self._senders.update(((conversation_id, target, effect_id), writer) for effect_id, target in targets)
        self.disk.keep(conversation_id, row)
        return row

    def store_receipts(self, receipts: list[Callable[[], None]]) -> None:
        """Store these receipts, and leave none of them in the list."""
        waiting = set(self.outbox())
        for store in receipts:
            store()
        receipts.clear()
        self.settled |= waiting.difference(self.outbox())

    def is_abandoned(self, conversation_id: str) -> bool:
        """Whether something is in flight, in the outbox, or waits for a person, that a process has begun which is
        closed or dead."""
        rows = self.disk.rows[conversation_id]
        begun = {one.effect_id: row.writer for row in rows for one in row.effects if isinstance(one, AwaitedEffect)}
        state: AnyState = rows[-1].state
        waiting = state.round.running if isinstance(state, AwaitingUserResponse) else ()
        under_way = (*state.in_flight(), *(call.effect_id for call in waiting))
        senders = {self._senders[delivered] for delivered in self.outbox() if delivered[0] == conversation_id}
        processes = [self.processes[name] for name in {begun[effect_id] for effect_id in under_way} | senders]
        return any(process.is_dead or not process.is_open for process in processes)

    def outbox(self) -> tuple[Delivered, ...]:
        """What is still to be handed over."""
        waiting = at_once(self.store.outbox(self.disk.rows))
        return tuple((each.conversation_id, each.target, each.effect_id) for each in waiting)

    def left_out(self) -> tuple[Delivered, ...]:
        """What of it is tried no more."""
        waiting = at_once(self.store.outbox(self.disk.rows))
        return tuple((it.conversation_id, it.target, it.effect_id) for it in waiting if it.begun >= DELIVERY_DEATHS)

    def next_attempt(self, conversation_id: str, now: datetime) -> datetime | None:
        """When the next attempt is due at what a conversation has still to hand over. What was due before `now`, and
        has had no attempt, is not to have one here."""
        waiting = at_once(self.store.outbox([conversation_id]))
        moments = (one.next_attempt for one in waiting)
        return min((one for one in moments if one is not None and one > now), default=None)

    def due_before(self, moment: datetime) -> tuple[str, ...]:
        """The conversations that have something to hand over whose next attempt was due before this moment."""
        waiting = at_once(self.store.outbox(self.disk.rows))
        return tuple(one.conversation_id for one in waiting if (one.next_attempt or moment) <= moment)

    def faults(self) -> Iterator[str]:
        """The files to which a log refers, and which are not there as they were stored."""
        for conversation_id, rows in self.disk.rows.items():
            for digest in {file.sha256 for row in rows for file in files_of(row.event) if file.sha256}:
                data = at_once(self.store.files.read(conversation_id, digest))
                if data is None or sha256(data).hexdigest() != digest:
                    yield f"{conversation_id} refers to the file {digest}, which is not there"

    def close(self) -> None:
        """Nothing: there is nothing to remove."""


if TYPE_CHECKING:
    _STORAGE: type[Storage] = FaultyStorage


class FaultyStore:
    """The storage as one process has it open: a `Store`, and the `Process` itself. What is not defined here only takes
    its time, and fails when the process is dead."""

    def __init__(self, storage: FaultyStorage, name: str) -> None:
        self.name = name
        self.storage = storage
        self.disk = storage.disk
        self.is_open = True
        self.is_dead = False
        self.files: Files = FaultyFiles(self)
        self._receipts: list[Callable[[], None]] = []
        """The receipts that are not stored yet."""
        self._claimed: set[str] = set()

    # --- the process

    @property
    def store(self) -> Any:
        """Itself."""
        return self

    def die_after(self, statements: int) -> None:
        """Have the process die: nothing is done in parts here, so at once."""
        self.is_dead = True

    def check_alive(self) -> None:
        """Raise `StoreError` if the store is closed or the process has died."""
        if self.is_dead:
            raise failed()
        if not self.is_open:
            raise StoreError("The store is closed.")

    def note(self, receipt: Callable[[], None]) -> None:
        """Store a receipt with the next step, or after a while."""
        self._receipts.append(receipt)
        asyncio.get_running_loop().call_later(self.disk.chance.pick(LATEST_RECEIPTS), self._store_late_receipts)

    def _store_late_receipts(self) -> None:
        if self.is_open and not self.is_dead:
            self.store_receipts()

    def store_receipts(self) -> None:
        """Store the receipts so far."""
        if self._receipts:
            self.storage.store_receipts(self._receipts)

    # --- what takes time, and fails

    def __getattr__(self, name: str) -> Any:
        return partial(self.ask, getattr(self.storage.store, name))

    async def ask(self, method: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any) -> T:
        """Return what a method of the store returns, after a while. Raises `StoreError` if the process is dead."""
        self.check_alive()
        await disk_time(self.disk.chance)  # what was begun before the store is closed is finished
        return await method(*arguments, **options)

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        """Store a new conversation. Raises `StorageFailed` at random."""
        await disk_time(self.disk.chance)
        self.check_alive()
        if self.disk.chance.probably(self.disk.failing):
            raise failed()
        log = await self.storage.store.create(conversation_id, event, step)
        self.store_receipts()
        self.storage.add(conversation_id, (event, step), self.name, ())
        return FaultyLog(self, conversation_id, log)

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation as it was left."""
        loaded: LoadedConversation = await self.ask(self.storage.store.load, conversation_id)
        return LoadedConversation(FaultyLog(self, conversation_id, loaded.log), loaded.state, loaded.context)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation."""
        await self.ask(self.storage.store.delete, conversation_id)
        self.disk.delete(conversation_id)

    async def claim(self, limit: int) -> tuple[str, ...]:
        """The conversations that nobody drives: what they have in flight was begun by a process that is gone."""
        abandoned = (id_ for id_ in self.disk.rows if id_ not in self._claimed and self.storage.is_abandoned(id_))
        claimed = tuple(abandoned)[:limit]
        self._claimed.update(claimed)
        return claimed

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Let these conversations be claimed again."""
        self._claimed.difference_update(conversation_ids)

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """What is still to be handed over by these conversations."""
        self.check_alive()
        return await self.storage.store.outbox(conversation_ids)

    async def close(self) -> None:
        """Store the receipts so far, and nothing more."""
        self._store_late_receipts()
        self.is_open = False


class FaultyFiles:
    """The files as one process has the storage open: `Files`. They are those of the store in memory, stored late or
    not at all; the process may die before it knows that one is."""

    def __init__(self, store: FaultyStore) -> None:
        self._store = store
        self._files = store.storage.store.files

    async def keep(self, conversation_id: str | None, sha256: str, data: bytes) -> str | None:
        """Store a file, and keep it for this conversation. Raises `StorageFailed` at random."""
        disk = self._store.disk
        self._store.check_alive()
        await disk_time(disk.chance)  # what was begun before the store is closed is finished
        if self._store.is_dead or disk.chance.probably(disk.failing):
            raise failed()
        mark: str | None = await self._files.keep(conversation_id, sha256, data)
        await disk_time(disk.chance)
        if self._store.is_dead:
            raise failed()
        return mark

    async def take_back(self, conversation_id: str, sha256: str, mark: str) -> None:
        """Keep a file no longer."""
        await self._store.ask(self._files.take_back, conversation_id, sha256, mark)

    async def read(
        self, conversation_id: str | None, sha256: str, start: int = 0, end: int | None = None
    ) -> bytes | None:
        """A part of a file."""
        return await self._store.ask(self._files.read, conversation_id, sha256, start, end)

    async def of(self, conversation_id: str) -> tuple[KeptFile, ...]:
        """The files that are kept for this conversation."""
        return await self._store.ask(self._files.of, conversation_id)


class FaultyLog:
    """The log of one conversation, open at its end in one process: a `Log`."""

    def __init__(self, store: FaultyStore, conversation_id: str, log: Log) -> None:
        self.store = store
        self.disk = store.disk
        self.conversation_id = conversation_id
        self.inner = log
        self.rows = store.disk.rows[conversation_id]
        self._seq = len(self.rows)
        self._is_writing = False
        self._misreported: Row | None = None
        """The step that was stored although its attempt failed."""

    @property
    def seq(self) -> int:
        """The newest step that this log knows of."""
        return self._seq

    @property
    def chain(self) -> bytes:
        """The link of that step."""
        return self.rows[self._seq - 1].chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step. Raises `StorageFailed` at random, and `StoreConflict` where a real store does."""
        self._check_use(event, step)
        self._is_writing = True
        try:
            await disk_time(self.disk.chance)
            self.store.check_alive()
            self.add(event, step, tuple(targets))
            await disk_time(self.disk.chance)
        finally:
            self._is_writing = False

    def add(self, event: Event, step: Step, targets: tuple[tuple[int, str], ...]) -> None:
        """Store a step behind those that this log knows of, or fail."""
        chance, trace = self.disk.chance, self.disk.trace
        if not self._was_stored(event, step):
            fails = not self._is_overtaken(event) and chance.probably(self.disk.failing)
            if fails and (isinstance(event, Request) or not chance.probably(MISREPORTED)):
                trace.record("store", f"{self.store.name} fails to store {event.type}")
                raise failed()
            row = self.store_step(event, step, targets)
            if fails:
                trace.record("store", f"{self.store.name} stored {event.type} and reports a failure")
                self._misreported = row
                raise failed()
        self._seq += 1

    def _is_overtaken(self, event: Event) -> bool:
        """Whether the step cannot be stored any more: that another one was is told at once."""
        if self.disk.rows.get(self.conversation_id) is not self.rows:
            return True  # the conversation was deleted
        return len(self.rows) != self._seq or identity(event) in self.disk.identities[self.conversation_id] - {None}

    def store_step(self, event: Event, step: Step, targets: tuple[tuple[int, str], ...]) -> Row:
        """Store a step with what it hands over, and the receipts so far."""
        try:
            at_once(self.inner.append(event, step, targets))
        except ValueError as error:
            self.disk.trace.report_fault(f"{event.type} cannot be stored: {error}")
            raise
        self.store.store_receipts()
        return self.store.storage.add(self.conversation_id, (event, step), self.store.name, targets)

    def _was_stored(self, event: Event, step: Step) -> bool:
        """Whether an attempt of this log has stored the step although it failed."""
        row, self._misreported = self._misreported, None
        stored = None if row is None else (row.seq, row.event, row.effects, row.state)
        return stored == (self._seq + 1, event, step.effects, step.state)

    def _check_use(self, event: Event, step: Step) -> None:
        if not self.store.is_open and not self.store.is_dead:
            self._report(f"{event.type} is to be stored after the store was closed")
        elif self._is_writing:
            self._report(f"{event.type} is to be stored while another step is being stored")
        elif step.state.book.seq != self._seq + 1:
            self._report(f"step {step.state.book.seq} is to be stored behind step {self._seq}")

    def _report(self, fault: str) -> None:
        self.disk.trace.report_fault(fault)
        raise StoreConflict("The step does not follow the newest step of its conversation.")

    async def request(self, event_id: str) -> StoredEntry | None:
        """The step that took the request with this id, or None."""
        await disk_time(self.disk.chance)
        self.store.check_alive()
        return await self.inner.request(event_id)

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """The steps that others have stored behind `seq`."""
        await disk_time(self.disk.chance)
        self.store.check_alive()
        await self.inner.catch_up()  # it may be ahead by a step whose attempt has failed
        missed = await self.store.storage.store.entries(self.conversation_id, self._seq)
        self._seq += len(missed)
        return missed

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Take what has arrived out of the outbox, soon."""
        self.store.note(partial(self.inner.acknowledge, effect_id, target))

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that an attempt has failed, soon."""
        self.store.note(partial(self.inner.postpone, effect_id, target, attempts, next_attempt))

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at what an earlier process has left, behind the receipts so far."""
        await disk_time(self.disk.chance)
        self.store.check_alive()
        self.store.store_receipts()
        await self.inner.begin(effect_id, target, begun)


def failed() -> StorageFailed:
    """The error of a disk that takes nothing."""
    return StorageFailed("The disk is full.")


def at_once(calling: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing."""
    try:
        calling.send(None)
    except StopIteration as ended:
        returned: T = ended.value
        return returned
    raise AssertionError("The store waits.")
