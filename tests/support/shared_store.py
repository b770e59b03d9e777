"""A store that several processes share, in one process: stores of the port `SharedStore` over one SQLite store.

Each `SharedDouble` is the store of one process. What it stores, deletes and shows is heard by the others. Jobs are a
queue, and fences are compared as a database would.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from turnwise.persistence.errors import CustodyLost
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import (
    ConversationGone,
    LiveShown,
    Log,
    Notice,
    NoticesMissed,
    SharedStore,
    StepStored,
    Store,
    Taken,
    Untried,
)
from turnwise.persistence.records import Undelivered
from turnwise.states import Event, Opened, Step, UnknownConversation

from .planted.stores import WrappedLog, WrappedStore


@dataclass
class Bus:
    """What the processes share: the store, who holds what, who is called for, and what is heard."""

    inner: Store
    stores: list[SharedDouble] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    called: deque[str] = field(default_factory=deque)
    call: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, teller: SharedDouble, notice: Notice) -> None:
        """Have all others hear a notice."""
        for store in self.stores:
            if store is not teller:
                store.heard.put_nowait(notice)

    def call_for(self, conversation_id: str) -> None:
        """Have somebody look after a conversation."""
        if conversation_id not in self.called:
            self.called.append(conversation_id)
        self.call.set()


class QueuedJobs:
    """The port `Jobs`: a queue for each bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def call(self, conversation_id: str) -> None:
        """See `Jobs`."""
        self._bus.call_for(conversation_id)

    async def serve(self, look_after: Callable[[str], Awaitable[None]], *, slots: int, lease: float) -> None:
        """See `Jobs`."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                await self._bus.call.wait()
                self._bus.call.clear()
                for conversation_id in [*self._bus.called]:
                    if conversation_id not in tasks or tasks[conversation_id].done():
                        self._bus.called.remove(conversation_id)
                        task = tasks[conversation_id] = asyncio.ensure_future(look_after(conversation_id))
                        task.add_done_callback(lambda _: self._bus.call.set())
        finally:
            if tasks:
                await asyncio.wait(tasks.values())


class SharedLog(WrappedLog):
    """The log of one conversation, as one process has it."""

    def __init__(self, log: Log, store: SharedDouble, conversation_id: str) -> None:
        super().__init__(log)
        self._store = store
        self._id = conversation_id

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step, tell the others, and call for somebody if it begins work here."""
        bus, taken = self._store.bus, self._store.taken.get(self._id)
        if taken is not None and bus.fences[self._id] != taken.fence:
            raise CustodyLost("Another process looks after the conversation.")
        outgoing = tuple(targets)
        await super().append(event, step, outgoing)
        bus.tell(self._store, StepStored(self._id, self.seq))
        if taken is None and (outgoing or step.state.in_flight()):
            bus.call_for(self._id)


class SharedDouble(WrappedStore):
    """The store of one process of those that share it."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus.inner)
        self.bus = bus
        bus.stores.append(self)
        self.heard: asyncio.Queue[Notice] = asyncio.Queue()
        self.taken: dict[str, Taken] = {}

    async def create(self, conversation_id: str, event: Opened, step: Step, **options: Any) -> Log:
        """See `Store`."""
        log = await self.store.create(conversation_id, event, step, **options)
        self.bus.tell(self, StepStored(conversation_id, 1))
        return SharedLog(log, self, conversation_id)

    async def load(self, conversation_id: str) -> Any:
        """See `Store`."""
        loaded = await self.store.load(conversation_id)
        return type(loaded)(SharedLog(loaded.log, self, conversation_id), loaded.state, loaded.context)

    async def delete(self, conversation_id: str) -> None:
        """See `Store`."""
        await self.store.delete(conversation_id)
        self.bus.tell(self, ConversationGone(conversation_id))

    async def claim(self, limit: int) -> tuple[str, ...]:
        """See `SharedStore`."""
        return ()

    async def close(self) -> None:
        """Leave the others; the store itself is closed by whoever opened it."""

    # --- what is shared

    @property
    def jobs(self) -> QueuedJobs:
        """See `SharedStore`."""
        return QueuedJobs(self.bus)

    async def take(self, conversation_id: str, holder: str) -> Taken | None:
        """See `SharedStore`."""
        try:
            loaded = await self.store.load(conversation_id)
        except UnknownConversation:
            return None
        before = self.bus.holders.get(conversation_id)
        self.bus.holders[conversation_id] = holder
        fence = self.bus.fences[conversation_id] = self.bus.fences.get(conversation_id, 0) + 1
        has_deliveries = bool(await self.store.outbox([conversation_id]))
        was_left = before not in (None, holder)
        taken = Taken(conversation_id, fence, holder, loaded.log.seq, was_left, has_deliveries)
        self.taken[conversation_id] = taken
        return taken

    async def let_go(self, taken: Taken, *, at_rest: bool) -> None:
        """See `SharedStore`."""
        self.taken.pop(taken.conversation_id, None)
        if self.bus.fences[taken.conversation_id] == taken.fence:
            if at_rest:
                self.bus.holders.pop(taken.conversation_id, None)
            else:
                self.bus.call_for(taken.conversation_id)

    async def confirm(self, taken: Taken) -> bool:
        """See `SharedStore`."""
        return self.bus.fences[taken.conversation_id] == taken.fence

    async def find_moved(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """See `SharedStore`."""
        newest = {conversation_id: await self._seq(conversation_id) for conversation_id in known}
        return {name: seq for name, seq in newest.items() if seq != known[name]}

    async def _seq(self, conversation_id: str) -> int:
        try:
            return (await self.store.load(conversation_id)).log.seq
        except UnknownConversation:
            return 0

    async def untried(self) -> set[Untried]:
        """See `SharedStore`."""
        return untried_of(await self.store.outbox({*self.bus.holders, *self.bus.called}))

    def show(self, shown: LiveShown) -> None:
        """See `SharedStore`."""
        self.bus.tell(self, shown)

    async def notices(self) -> AsyncGenerator[Notice, None]:
        """See `SharedStore`."""
        yield NoticesMissed()
        while True:
            yield await self.heard.get()


_FILLS: type[SharedStore] = SharedDouble


def untried_of(undelivered: Iterable[Undelivered]) -> set[Untried]:
    """What counts as never tried of this, which stands in the order of its targets."""
    found, behind = set[Untried](), set[tuple[str, str]]()
    for one in undelivered:
        if one.attempts:
            behind.add((one.conversation_id, one.target))
        elif (one.conversation_id, one.target) not in behind:
            found.add(Untried(one.conversation_id, one.effect_id, one.target))
    return found


@asynccontextmanager
async def shared_stores(count: int = 2) -> AsyncIterator[tuple[Bus, tuple[SharedDouble, ...]]]:
    """A bus, and the stores of so many processes over one database in memory."""
    inner = await open_store("sqlite://")
    bus = Bus(inner)
    try:
        yield bus, tuple(SharedDouble(bus) for _ in range(count))
    finally:
        await inner.close()
