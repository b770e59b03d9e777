"""The log of one conversation in memory, as one process has it open.

What an engine must never try is reported as a fault at once, whatever would come of it later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ....states.errors import UnknownConversation
from ....states.events import Event, Request
from ....states.step import Step
from ..environment.random_source import RandomSource
from .disk import Disk, Row, identity
from .memory_outbox import Receipt
from .storage import Delivered

if TYPE_CHECKING:
    from ....persistence.errors import StorageFailed, StoreConflict
    from ....persistence.records import StoredEntry

MISREPORTED = 0.2
"""How many of the failed attempts to store an answer have stored it all the same."""


class StoreOfProcess(Protocol):
    """The store in memory, as one process has it open."""

    disk: Disk
    is_open: bool
    is_dead: bool

    @property
    def name(self) -> str:
        """The name of the process."""
        ...

    def check_alive(self) -> None:
        """Raise `StoreError` if the store is closed or the process has died."""
        ...

    def note(self, receipt: Receipt) -> None:
        """Store a receipt soon."""
        ...

    def begin(self, delivered: Delivered, begun: int) -> None:
        """Store that an attempt begins at what an earlier process has left."""
        ...

    def add(self, conversation_id: str, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> Row:
        """Store a step, with what it hands over, and the receipts so far."""
        ...


class MemoryLog:
    """The log of one conversation, open at its end in one process: a `Log`."""

    NEEDS_NO_TASK = True

    def __init__(self, store: StoreOfProcess, conversation_id: str) -> None:
        self._store = store
        self._disk = store.disk
        self._id = conversation_id
        self._rows = store.disk.rows[conversation_id]
        self._seq = len(self._rows)
        self._is_writing = False
        self._misreported: Row | None = None
        """The step that was stored although its attempt failed."""

    @property
    def _is_deleted(self) -> bool:
        """Whether the conversation was deleted; another one may have its id since."""
        return self._disk.rows.get(self._id) is not self._rows

    @property
    def seq(self) -> int:
        """The newest step that this log knows of."""
        return self._seq

    @property
    def chain(self) -> bytes:
        """The link of that step."""
        return self._rows[self._seq - 1].chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step. Raises `StorageFailed` at random, and `StoreConflict` where a real store does."""
        self._check_use(event, step)
        self._is_writing = True
        try:
            await disk_time(self._disk.chance)
            self._store.check_alive()
            self._add(event, step, targets)
            await disk_time(self._disk.chance)
        finally:
            self._is_writing = False

    def _add(self, event: Event, step: Step, targets: Iterable[tuple[int, str]]) -> None:
        chance, disk = self._disk.chance, self._disk
        if self._is_deleted:
            raise conflict()
        if not self._was_stored(event, step):
            if len(self._rows) != self._seq or identity(event) in disk.identities[self._id] - {None}:
                raise conflict()
            fails = chance.probably(disk.failing)
            if fails and (isinstance(event, Request) or not chance.probably(MISREPORTED)):
                disk.trace.record("store", f"{self._store.name} fails to store {event.type}")
                raise failed()
            row = self._store.add(self._id, event, step, targets)
            if fails:
                disk.trace.record("store", f"{self._store.name} stored {event.type} and reports a failure")
                self._misreported = row
                raise failed()
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
        raise conflict()

    async def request(self, event_id: str) -> StoredEntry | None:
        """The step that took the request with this id, or None."""
        await disk_time(self._disk.chance)
        self._check_stored()
        took = (row for row in self._rows if isinstance(row.event, Request) and row.event.event_id == event_id)
        row = next(took, None)
        return None if row is None else row.entry

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """The steps that others have stored behind `seq`."""
        await disk_time(self._disk.chance)
        self._check_stored()
        missed = tuple(row.entry for row in self._rows[self._seq :])
        self._seq = len(self._rows)
        return missed

    def _check_stored(self) -> None:
        self._store.check_alive()
        if self._is_deleted:
            raise UnknownConversation(self._id)

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Take what has arrived out of the outbox, soon."""
        self._store.note(Receipt((self._id, target, effect_id)))

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that an attempt has failed, soon."""
        self._store.note(Receipt((self._id, target, effect_id), attempts, next_attempt))

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at what an earlier process has left."""
        await disk_time(self._disk.chance)
        self._store.check_alive()
        self._store.begin((self._id, target, effect_id), begun)


async def disk_time(chance: RandomSource) -> None:
    """The time that a disk takes: often none, not even another task's turn."""
    if chance.probably(0.5):
        await asyncio.sleep(chance.pick((0.0, 0.0, 0.001, 0.02, 1.0)))


def failed() -> StorageFailed:
    """The error of a disk that takes nothing."""
    from ....persistence.errors import StorageFailed

    return StorageFailed("The disk is full.")


def conflict() -> StoreConflict:
    """The error of a step that another one has overtaken."""
    from ....persistence.errors import StoreConflict

    return StoreConflict("The step does not follow the newest step of its conversation.")
