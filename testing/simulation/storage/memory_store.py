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
from ....states.events import Event, Opened
from ....states.roles import Role
from ....states.states import AnyState, AwaitingUserResponse
from ....states.step import Step
from .disk import Disk, Row
from .memory_log import MemoryLog, conflict, disk_time, failed
from .memory_outbox import MemoryOutbox, Receipt
from .storage import Delivered
from .summaries import summaries, wake_ups

if TYPE_CHECKING:
    from ....persistence.ports import LoadedConversation, Log, Store
    from ....persistence.records import ConversationRecord, StoredEntry, Undelivered
    from ....persistence.summaries import Summary
    from .storage import Process, Storage


LATEST_RECEIPTS = (0.1, 1.0, 10.0)
"""Seconds after which a receipt is stored at the latest."""


class MemoryStore:
    """The disk as one process has it open: a `Store`, and the `Process` itself."""

    def __init__(self, disk: Disk, name: str, storage: MemoryStorage) -> None:
        self.disk = disk
        self.is_open = True
        self.is_dead = False
        self.receipts: list[Receipt] = []
        """The receipts that are not stored yet."""
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
            raise failed()
        if not self.is_open:
            raise StoreError("The store is closed.")

    def note(self, receipt: Receipt) -> None:
        """Store a receipt with the next step, or after a while."""
        self.receipts.append(receipt)
        asyncio.get_running_loop().call_later(self.disk.chance.pick(LATEST_RECEIPTS), self._store_receipts)

    def begin(self, delivered: Delivered, begun: int) -> None:
        """Store that an attempt begins at what an earlier process has left, behind the receipts so far."""
        self._storage.waiting.store_receipts(self.receipts)
        self._storage.waiting.begin(delivered, begun)

    def _store_receipts(self) -> None:
        if self.is_open and not self.is_dead:
            self._storage.waiting.store_receipts(self.receipts)

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        """Store a new conversation. Raises `StoreConflict` if its id is taken, `UnknownConversation` if it has a parent
        which is not stored, and `StorageFailed` at random."""
        await disk_time(self.disk.chance)
        self.check_alive()
        if event.parent is not None and event.parent not in self.disk.rows:
            raise UnknownConversation(event.parent)
        if conversation_id in self.disk.rows:
            raise conflict()
        if self.disk.chance.probably(self.disk.failing):
            raise failed()
        self.add(conversation_id, event, step)
        return MemoryLog(self, conversation_id)

    def add(self, conversation_id: str, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> Row:
        """Store a step, with what it hands over, and the receipts so far."""
        outbox = self._storage.waiting
        try:
            row = self.disk.add(conversation_id, event, step, self._name)
        except ValueError as error:
            self.disk.trace.report_fault(f"{event.type} cannot be stored: {error}")
            raise
        outbox.store_receipts(self.receipts)
        outbox.add(conversation_id, row.seq, self._name, targets)
        return row

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
        """Take the time that reading takes. Raises `UnknownConversation`."""
        self.check_alive()
        await disk_time(self.disk.chance)  # what was begun before the store is closed is finished
        if conversation_id not in self.disk.rows:
            raise UnknownConversation(conversation_id)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation."""
        await self._read(conversation_id)
        self.disk.delete(conversation_id)
        self._storage.waiting.drop(conversation_id)

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
        """What is still to be handed over by these conversations."""
        self.check_alive()
        return self._storage.waiting.undelivered(conversation_ids)

    async def list(
        self,
        *,
        owner: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        role: Role | None = None,
        parent: str | None = None,
        works_for: str | None = None,
    ) -> tuple[Summary, ...]:
        """Summaries, the conversation that moved last first."""
        self.check_alive()
        await disk_time(self.disk.chance)
        return summaries(
            self.disk,
            metadata=metadata,
            limit=limit,
            before=before,
            owner=owner,
            state=state,
            role=role,
            parent=parent,
            works_for=works_for,
        )

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """The conversations with a scheduled wake-up, the earliest first."""
        self.check_alive()
        await disk_time(self.disk.chance)
        return wake_ups(self.disk, limit)

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
        """Store the receipts so far, and nothing more."""
        self._store_receipts()
        self.is_open = False


class MemoryStorage:
    """A `Storage` in memory."""

    def __init__(self, disk: Disk) -> None:
        self.waiting = MemoryOutbox()
        self._disk = disk
        self._processes: dict[str, MemoryStore] = {}

    @property
    def settled(self) -> set[Delivered]:
        """What was taken out of the outbox."""
        return self.waiting.settled

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        process = self._processes[name] = MemoryStore(self._disk, name, self)
        return process

    def is_abandoned(self, conversation_id: str) -> bool:
        """Whether something is in flight, in the outbox, or waits for a person, that a process has begun which is
        closed or dead."""
        rows = self._disk.rows[conversation_id]
        begun = {one.effect_id: row.writer for row in rows for one in row.effects if isinstance(one, AwaitedEffect)}
        state: AnyState = rows[-1].state
        waiting = state.round.running if isinstance(state, AwaitingUserResponse) else ()
        under_way = (*state.in_flight(), *(call.effect_id for call in waiting))
        writers = {begun[effect_id] for effect_id in under_way} | self.waiting.writers_of(conversation_id)
        processes = [self._processes[name] for name in writers]
        return any(process.is_dead or not process.is_open for process in processes)

    def outbox(self) -> tuple[Delivered, ...]:
        """What is still to be handed over."""
        return tuple(self.waiting.entries)

    def faults(self) -> tuple[str, ...]:
        """Nothing: there is no file that could be wrong."""
        return ()

    def close(self) -> None:
        """Nothing: there is nothing to remove."""


if TYPE_CHECKING:
    _STORAGE: type[Storage] = MemoryStorage
