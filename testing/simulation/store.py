"""A store without a disk, which takes its time and fails at bad moments.

It does what the real one promises: a step is stored whole or not at all, and only if it follows the newest one. What
the engine may never try is a fault at once, whatever would come of it later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...states.context import Context
from ...states.errors import StoreError, UnknownConversation
from ...states.events import Event, Opened, Request
from ...states.log import LogEntry
from ...states.step import Step
from .channels import Sent
from .disk import Disk, named
from .random_source import RandomSource

if TYPE_CHECKING:
    from ...persistence.errors import StorageFailed, StoreConflict
    from ...persistence.ports import LoadedConversation
    from ...persistence.records.outbox import Undelivered


class MemoryLog:
    """One conversation's place in the store: a `Log`."""

    def __init__(self, store: MemoryStore, conversation_id: str) -> None:
        self._store = store
        self._disk = store.disk
        self._id = conversation_id
        self._writing = False

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step. Raises `StorageFailed` when the dice say so, and `StoreConflict` where the real store does."""
        self._check(event, step)
        dice, disk = self._disk.dice, self._disk
        self._writing = True
        try:
            await wait(dice)
            if self._store.is_dead:
                raise _failed()
            if dice.chance(disk.failing):
                disk.story.tell("store", f"fails to store {event.type}")
                raise _failed()
            self._add(event, step)
            await wait(dice)
        finally:
            self._writing = False

    @property
    def seq(self) -> int:
        """The newest step."""
        return len(self._disk.rows[self._id])

    async def request(self, event_id: str) -> Request | None:
        """The request that was taken under this id."""
        events = (row.event for row in self._disk.rows[self._id])
        return next((event for event in events if isinstance(event, Request) and event.event_id == event_id), None)

    async def catch_up(self) -> tuple[LogEntry, ...]:
        """Nobody else writes here."""
        return ()

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Deliveries go out by the world, and are not noted here."""

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """The same."""

    def _check(self, event: Event, step: Step) -> None:
        rows = self._disk.rows[self._id]
        if not self._store.is_open and not self._store.is_dead:
            raise self._conflict(f"{event.type} is to be stored after the store was closed")
        if self._writing:
            raise self._conflict(f"{event.type} is to be stored while another step is being stored")
        if step.state.book.seq != len(rows) + 1:
            raise self._conflict(f"step {step.state.book.seq} is to be stored behind step {len(rows)}")
        if (name := named(event)) is not None and name in self._disk.names[self._id]:
            if isinstance(event, Request):  # the engine asks about a repeated request when it meets this conflict
                raise self._conflict()
            raise self._conflict(f"{event.type} is to be stored, and {name} is in the log already")

    def _add(self, event: Event, step: Step) -> None:
        try:
            self._disk.add(self._id, event, step)
        except ValueError as error:
            self._disk.story.blame(f"{event.type} cannot be stored: {error}")
            raise

    def _conflict(self, sentence: str = "") -> StoreConflict:
        from ...persistence.errors import StoreConflict

        if sentence:
            self._disk.story.blame(sentence)
        return StoreConflict("The step does not follow the newest step of its conversation.")


class MemoryStore:
    """The disk, as an engine has it open: what an engine uses of `Store`."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._unclaimed = tuple(disk.rows)
        self.is_open = True
        self.is_dead = False

    async def create(self, conversation_id: str, event: Opened, step: Step) -> MemoryLog:
        """Store a new conversation."""
        log = MemoryLog(self, conversation_id)
        log._add(event, step)
        return log

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation as it was left."""
        from ...persistence.ports import LoadedConversation

        context = Context()
        for entry in await self.entries(conversation_id):
            context = context.after(entry.event)
        log: Any = MemoryLog(self, conversation_id)
        return LoadedConversation(log, self.disk.head(conversation_id), context)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[LogEntry, ...]:
        """The steps behind the step `after`. Raises `UnknownConversation`, and `StoreError` once it is closed."""
        if not self.is_open and not self.is_dead:
            raise StoreError("The store is closed.")
        if conversation_id not in self.disk.rows:
            raise UnknownConversation(conversation_id)
        await wait(self.disk.dice)
        return tuple(row.entry for row in self.disk.rows[conversation_id][after:up_to])

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Deliveries go out by the world, so none is left."""
        return ()

    async def claim(self, limit: int) -> tuple[str, ...]:
        """All conversations: whether they wait for something is for the engine to see."""
        claimed, self._unclaimed = self._unclaimed[:limit], self._unclaimed[limit:]
        return claimed

    async def close(self) -> None:
        """Let nobody write any more."""
        self.is_open = False


class MemoryStorage:
    """A `Storage` without a database."""

    def __init__(self, disk: Disk) -> None:
        self.settled: set[Sent] = set()
        self._disk = disk
        self._store = MemoryStore(disk)

    async def open(self) -> MemoryStore:
        """The store of the next process."""
        self._store = MemoryStore(self._disk)
        return self._store

    @property
    def is_dead(self) -> bool:
        """Whether the process of the store that was opened last is dead."""
        return self._store.is_dead

    def die_after(self, statements: int) -> None:
        """Nothing is done in parts here: the process dies at once."""
        self._store.is_dead = True

    def faults(self) -> tuple[str, ...]:
        """There is no file that could be wrong."""
        return ()

    def outbox(self) -> tuple[Sent, ...]:
        """Deliveries are not noted here."""
        return ()

    def close(self) -> None:
        """There is nothing to clean up."""


async def wait(dice: RandomSource) -> None:
    """The time that a disk takes: often none at all, not even another task's turn."""
    if dice.chance(0.5):
        await asyncio.sleep(dice.pick((0.0, 0.0, 0.001, 0.02, 1.0)))


def _failed() -> StorageFailed:
    from ...persistence.errors import StorageFailed

    return StorageFailed("The disk is full.")
