"""A store that several simulated processes share: custody by fences, jobs, alarms and notices, in virtual time.

What a server would hold stands in a `Cluster`: fences and holders, jobs that wait or run, alarms, the hearts of the
workers. A job of a conversation runs once at a time, until the heart of its worker has not beaten for a lease; then
another one takes its place, and the first may go on all the same. Notices of what others store come late, twice,
several as one, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from turnwise.effects.clock import SystemClock
from turnwise.persistence.codec import next_timer
from turnwise.persistence.errors import CustodyLost, StorageFailed
from turnwise.persistence.ports import (
    ConversationGone,
    LiveShown,
    LoadedConversation,
    Log,
    Notice,
    NoticesMissed,
    SharedStore,
    StepStored,
    Taken,
    Untried,
)
from turnwise.persistence.records import ConversationRecord, Undelivered
from turnwise.states.context import Context as ConversationContext
from turnwise.states.events import Event, Opened
from turnwise.states.machine import begin, transition
from turnwise.states.states import AnyState, Idle
from turnwise.states.step import Step

if TYPE_CHECKING:
    from turnwise.effects.clock import Clock

from .disk import Delivered, Disk, LogKey, Process, Row, disk_time
from .environment import EventTrace, Steady
from .faulty_store import FaultyLog, FaultyStorage, FaultyStore, at_once, failed

BEATS = 4
"""How often a heart beats, and is looked at, within a lease."""

EARLIEST = timedelta(seconds=3)
"""How long before its moment something that is due later may be called for."""

LONGEST_POLL = 5.0
"""Seconds after which a worker looks for jobs although it is not called."""

LONGEST_ALARM = 86_400.0
"""Seconds after which an alarm is looked at again at the latest."""


@dataclass
class Job:
    """Somebody is to look after a conversation. `worker` is the process that does."""

    conversation_id: str
    worker: str = ""


@dataclass
class Cluster:
    """What the server of a shared store holds besides the conversations."""

    disk: Disk
    clock: Clock
    fences: dict[LogKey, int] = field(default_factory=dict)
    holders: dict[LogKey, str] = field(default_factory=dict)
    """Who has not let go of a conversation."""
    keepers: dict[LogKey, str] = field(default_factory=dict)
    """The process of that holder."""
    losers: set[str] = field(default_factory=set)
    """The processes from which a conversation was taken."""
    left: set[LogKey] = field(default_factory=set)
    """The conversations of which an earlier holder has not let go."""
    lost_at: dict[tuple[LogKey, str], float] = field(default_factory=dict)
    """When a process had the custody of a conversation last."""
    waiting: dict[str, Job] = field(default_factory=dict)
    running: dict[str, Job] = field(default_factory=dict)
    alarms: dict[str, set[datetime]] = field(default_factory=dict)
    hearts: dict[str, float] = field(default_factory=dict)
    listeners: list[SharedFaultyStore] = field(default_factory=list)
    is_called: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a job may be there for a worker."""
    rows_by: dict[tuple[LogKey, int], tuple[str, int]] = field(default_factory=dict)
    """Under which fence of which process each step was stored; an empty name for a process without custody."""

    def call(self, conversation_id: str) -> None:
        """Have a conversation looked after, unless a job of it waits already."""
        self.waiting.setdefault(conversation_id, Job(conversation_id))
        self.is_called.set()

    def call_at(self, conversation_id: str, due: datetime) -> None:
        """Have a conversation looked after at this moment, or a little before."""
        due -= self.disk.chance.pick((timedelta(0), timedelta(0), EARLIEST))
        self.alarms.setdefault(conversation_id, set()).add(due)
        wait = max(0.0, (due - self.clock.now()).total_seconds())
        asyncio.get_running_loop().call_later(min(wait, LONGEST_ALARM), self.is_called.set, context=Context())

    def ring(self) -> None:
        """Call for the conversations whose alarm is due."""
        for conversation_id, moments in list(self.alarms.items()):
            if due := {one for one in moments if one <= self.clock.now()}:
                moments -= due
                self.call(conversation_id)

    def rescue(self, lease: float, now: float) -> None:
        """Call again for what workers look after whose hearts have not beaten for a lease."""
        for conversation_id, job in list(self.running.items()):
            if now - self.hearts.get(job.worker, 0.0) > lease:
                self.disk.trace.record("jobs", f"{self.disk.name(conversation_id)}is taken from {job.worker}")
                self.call(conversation_id)
                del self.running[conversation_id]

    def sweep(self, forgotten: Iterable[str]) -> None:
        """Call for what waits and has no job, though it should have one. Of those that are `forgotten` something is to
        be sent that has been due for long: a process that stood still may have noted late what became of it."""
        for conversation_id in forgotten:
            if conversation_id not in self.running:
                self.call(conversation_id)
        for conversation_id, rows in self.disk.rows.items():
            state = rows[-1].state
            is_due = (due := next_timer(state)) is not None and due <= self.clock.now()
            wakes = state.book.wake is not None and state.book.wake <= self.clock.now()
            if (state.ends_with_process or is_due or wakes) and conversation_id not in self.running:
                self.call(conversation_id)

    def next_job(self) -> Job | None:
        """The job that has waited for longest whose conversation nobody looks after."""
        self.ring()
        for conversation_id, job in self.waiting.items():
            if conversation_id not in self.running:
                del self.waiting[conversation_id]
                return job
        return None

    # --- custody

    def take(self, key: LogKey, holder: str, process: str) -> tuple[int, bool]:
        """Begin a custody. Returns its fence, and whether an earlier holder had not let go."""
        before = self.holders.get(key)
        if before != holder:
            if before is not None:
                self.losers.add(self.keepers[key])
            self._note_end(key)
            self.fences[key] = self.fences.get(key, 0) + 1
            self.holders[key], self.keepers[key] = holder, process
            (self.left.discard if before is None else self.left.add)(key)
        return self.fences[key], key in self.left

    def let_go(self, key: LogKey) -> None:
        """End a custody, which was let go of at rest."""
        self._note_end(key)
        self.holders.pop(key, None)
        self.keepers.pop(key, None)
        self.left.discard(key)

    def forget(self, key: LogKey) -> None:
        """Forget the custody of a conversation that was deleted, and what calls for it."""
        self.let_go(key)
        self.waiting.pop(key[0], None)
        self.alarms.pop(key[0], None)

    def _note_end(self, key: LogKey) -> None:
        if (keeper := self.keepers.get(key)) is not None:
            self.lost_at[key, keeper] = asyncio.get_running_loop().time()

    def may_perform(self, process: str, key: LogKey, within: float) -> bool:
        """Whether this process has the custody, or had it so many seconds ago."""
        last = self.lost_at.get((key, process))
        now = asyncio.get_running_loop().time()
        return self.keepers.get(key) == process or (last is not None and now - last <= within)


class SharedStorage(FaultyStorage):
    """A `Storage` in memory that several processes have open at once."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        super().__init__(disk)
        self.cluster = Cluster(disk, clock)
        self.settled_by: dict[Delivered, str] = {}
        """Which process has taken each delivery out of the outbox."""

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        process = self.processes[name] = SharedFaultyStore(self, name)
        return process


def steady_storage() -> SharedStorage:
    """A storage for processes that are not simulated: in real time, and nothing of it fails, is late or is lost."""
    return SharedStorage(Disk(Steady("steady"), EventTrace(monotonic)), SystemClock())


class SharedFaultyStore(FaultyStore):
    """The storage as one process has it open: a `SharedStore`."""

    storage: SharedStorage

    def __init__(self, storage: SharedStorage, name: str) -> None:
        super().__init__(storage, name)
        self.cluster = storage.cluster
        self.jobs = SimulatedJobs(self)
        self.custodies: dict[LogKey, Taken] = {}
        """The custodies with which appends of this process are compared."""
        self.heard: asyncio.Queue[Notice] = asyncio.Queue()

    def store_receipts(self) -> None:
        """Store the receipts so far."""
        before = set(self.storage.settled)
        super().store_receipts()
        self.storage.settled_by.update((delivered, self.name) for delivered in self.storage.settled - before)

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Nothing: jobs say what waits."""
        return ()

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        """Store a new conversation."""
        await super().create(conversation_id, event, step)
        self._note_step(conversation_id, None, step, ())
        return SharedLog(self, conversation_id, (await self.storage.store.load(conversation_id)).log)

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation as it was left."""
        loaded: LoadedConversation = await self.ask(self.storage.store.load, conversation_id)
        return LoadedConversation(SharedLog(self, conversation_id, loaded.log), loaded.state, loaded.context)

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Store a copy of a conversation, which rests."""
        await self.ask(self.storage.store.copy, source_id, record)
        state: AnyState = Idle()
        context = ConversationContext()
        for entry in await self.storage.store.entries(record.id):
            event = entry.event
            step = begin(event) if isinstance(event, Opened) else transition(state, event, context)
            state, context = step.state, context.after(event)
            self.disk.keep(record.id, Row.of(entry, state, self.name))
        self._tell(StepStored(record.id, record.head.seq))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation, and what is kept of its custody."""
        key = self.disk.key_of(conversation_id)
        await super().delete(conversation_id)
        self.cluster.forget(key)
        self._tell(ConversationGone(conversation_id))

    # --- custody

    async def take(self, conversation_id: str, holder: str) -> Taken | None:
        """Take the custody of a conversation. Fails at random; then it may have been taken all the same."""
        await self._until_there()
        if conversation_id not in self.disk.rows:
            return None
        key = self.disk.key_of(conversation_id)
        fence, was_left = self.cluster.take(key, holder, self.name)
        seq = len(self.disk.rows[conversation_id])
        has_deliveries = any(one[0] == conversation_id for one in self.storage.outbox())
        taken = Taken(conversation_id, fence, holder, seq, was_left, has_deliveries)
        self.custodies[key] = taken
        self.disk.trace.record(
            "custody",
            f"{self.name} takes {self.disk.name(conversation_id)}{fence}{' which was left' if was_left else ''}",
        )
        await self._fail_afterwards()
        return taken

    async def let_go(self, taken: Taken, *, at_rest: bool) -> None:
        """Give the custody up."""
        key = next((key for key, one in self.custodies.items() if one is taken), None)
        if key is not None:
            del self.custodies[key]
        await self._until_there()
        self.store_receipts()
        key = self.disk.key_of(taken.conversation_id) if key is None else key
        if self.cluster.fences.get(key) == taken.fence and key == self.disk.key_of(taken.conversation_id):
            self._let_go(key, taken, at_rest=at_rest)
        await self._fail_afterwards()

    def _let_go(self, key: LogKey, taken: Taken, *, at_rest: bool) -> None:
        conversation_id = taken.conversation_id
        if conversation_id not in self.disk.rows:
            return
        how = "at rest" if at_rest else "in the middle"
        self.disk.trace.record(
            "custody", f"{self.name} lets go of {self.disk.name(conversation_id)}{taken.fence} {how}"
        )
        if not at_rest:
            self.cluster.call(conversation_id)
            return
        self.cluster.let_go(key)
        soon = self.cluster.clock.now() + EARLIEST
        if (due := self.storage.next_attempt(conversation_id, soon)) is not None:
            self.cluster.call_at(conversation_id, due)

    async def confirm(self, taken: Taken) -> bool:
        """Whether this is still the custody of the conversation."""
        await self._until_there()
        key = self.disk.key_of(taken.conversation_id)
        is_held = self.cluster.fences.get(key) == taken.fence and self.cluster.holders.get(key) == taken.holder
        await disk_time(self.disk.chance)
        return is_held

    async def untried(self) -> set[Untried]:
        """What is about to be sent for the first time."""
        await self._until_there()
        self.store_receipts()
        held = {conversation_id for conversation_id, _ in self.cluster.holders}
        return untried_of(await self.storage.store.outbox(held.union(self.cluster.waiting, self.cluster.running)))

    async def _until_there(self) -> None:
        await disk_time(self.disk.chance)
        self.check_alive()
        if self.disk.chance.probably(self.disk.failing):
            raise failed()

    async def _fail_afterwards(self) -> None:
        """Sometimes fail although everything was done."""
        await disk_time(self.disk.chance)
        if self.disk.chance.probably(self.disk.failing / 2):
            raise failed()

    # --- what a step brings about

    def stored(self, conversation_id: str, before: Row, step: Step, targets: tuple[tuple[int, str], ...]) -> None:
        """A step was stored by this process behind the step `before`."""
        self._note_step(conversation_id, before, step, targets)

    def _note_step(
        self, conversation_id: str, before: Row | None, step: Step, targets: tuple[tuple[int, str], ...]
    ) -> None:
        key, state, cluster = self.disk.key_of(conversation_id), step.state, self.cluster
        taken = self.custodies.get(key)
        cluster.rows_by[key, state.book.seq] = ("", 0) if taken is None else (self.name, taken.fence)
        waited = before is not None and before.state.ends_with_process
        if taken is None and ((state.ends_with_process and not waited) or targets):
            cluster.call(conversation_id)
        if not state.ends_with_process and (due := next_timer(state)) is not None:
            cluster.call_at(conversation_id, due)
        if state.book.wake is not None and (before is None or before.state.book.wake != state.book.wake):
            cluster.call_at(conversation_id, state.book.wake)
        self._tell(StepStored(conversation_id, state.book.seq))

    # --- notices

    def _tell(self, notice: Notice) -> None:
        for store in self.cluster.listeners:
            if store is not self:
                store.hear(notice)

    def hear(self, notice: Notice) -> None:
        """Hear of what another process did: late, twice, or not at all."""
        chance = self.disk.chance
        for _ in range(chance.pick((1, 0, 1, 1, 1, 2))):
            asyncio.get_running_loop().call_later(chance.seconds(), self.heard.put_nowait, notice)

    def show(self, shown: LiveShown) -> None:
        """Tell the others of a live update."""
        self._tell(shown)

    async def notices(self) -> AsyncGenerator[Notice, None]:
        """What others store, delete and show."""
        self.cluster.listeners.append(self)
        try:
            yield NoticesMissed()
            while True:
                yield await self.heard.get()
        finally:
            self.cluster.listeners.remove(self)

    async def find_moved(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """The newest steps of the conversations that have moved on; 0 for those that are gone."""
        await self._until_there()
        newest = {one: len(self.disk.rows.get(one, ())) for one in known}
        return {one: seq for one, seq in newest.items() if seq != known[one]}


def untried_of(undelivered: Iterable[Undelivered]) -> set[Untried]:
    """What counts as never tried of this, which stands in the order of its targets."""
    found, behind = set[Untried](), set[tuple[str, str]]()
    for one in undelivered:
        if one.attempts:
            behind.add((one.conversation_id, one.target))
        elif (one.conversation_id, one.target) not in behind:
            found.add(Untried(one.conversation_id, one.effect_id, one.target))
    return found


class SharedLog(FaultyLog):
    """The log of one conversation, open at its end in one process. Its steps are compared with the fence."""

    store: SharedFaultyStore
    newest_fence: int | None = None
    """That of the newest custody that this process has had, as far as was asked for."""

    def __init__(self, store: SharedFaultyStore, conversation_id: str, log: Log) -> None:
        super().__init__(store, conversation_id, log)
        self._counted: set[tuple[int, str]] = set()
        """The deliveries of which an attempt was counted by `begin`."""

    def forget_custody(self) -> None:
        """Have steps compared with no fence any more."""
        self.store.custodies.pop(self.disk.key_of(self.conversation_id), None)

    def _taken(self) -> Taken | None:
        """The custody that this process has."""
        taken = self.store.custodies.get(self.disk.key_of(self.conversation_id))
        if taken is not None:
            self.newest_fence = taken.fence
        return taken

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that an attempt has failed, soon. If another custody has begun by then, store only that the process has
        not died in it."""
        self._taken()
        key, fence, cluster = self.disk.key_of(self.conversation_id), self.newest_fence, self.store.cluster
        is_counted = (effect_id, target) in self._counted

        def postpone() -> None:
            if fence in (None, cluster.fences.get(key)):
                self.inner.postpone(effect_id, target, attempts, next_attempt)
            elif is_counted:
                at_once(self.inner.begin(effect_id, target, 0))

        self.store.note(postpone)

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins, unless another custody has begun."""
        self._taken()
        self._counted.discard((effect_id, target))
        key = self.disk.key_of(self.conversation_id)
        if self.newest_fence not in (None, self.store.cluster.fences.get(key)):
            raise CustodyLost("Another process looks after this conversation now.")
        await super().begin(effect_id, target, begun)
        self._counted.add((effect_id, target))

    def add(self, event: Event, step: Step, targets: tuple[tuple[int, str], ...]) -> None:
        """Store a step, unless another custody has begun."""
        key = self.disk.key_of(self.conversation_id)
        taken = self._taken()
        is_stored = self.disk.rows.get(self.conversation_id) is self.rows
        if taken is not None and is_stored and self.store.cluster.fences[key] != taken.fence:
            self.disk.trace.record(
                "custody", f"{self.store.name} has lost {self.disk.name(self.conversation_id)}{taken.fence}"
            )
            raise CustodyLost("Another process looks after this conversation now.")
        super().add(event, step, targets)

    def store_step(self, event: Event, step: Step, targets: tuple[tuple[int, str], ...]) -> Row:
        """Store a step, with what it calls for and what others hear of it."""
        before = self.rows[-1]
        row = super().store_step(event, step, targets)
        self.store.stored(self.conversation_id, before, step, targets)
        return row


class SimulatedJobs:
    """The jobs of a cluster, as one process has them: `Jobs`."""

    def __init__(self, store: SharedFaultyStore) -> None:
        self._store = store
        self._cluster = store.cluster
        self._chance = store.disk.chance

    async def call(self, conversation_id: str) -> None:
        """Have a conversation looked after."""
        await disk_time(self._chance)
        self._store.check_alive()
        if self._chance.probably(self._store.disk.failing):
            raise failed()
        self._cluster.call(conversation_id)

    async def serve(self, look_after: Callable[[str], Awaitable[None]], *, slots: int, lease: float) -> None:
        """Look after the conversations that have work, until this is cancelled, and those that were begun have
        returned."""
        begun: set[asyncio.Task[None]] = set()
        heart = asyncio.ensure_future(self._beat(lease))
        try:
            while True:
                while len(begun) < slots and not self._store.is_dead and (job := self._cluster.next_job()) is not None:
                    job.worker = self._store.name
                    self._cluster.running[job.conversation_id] = job
                    task = asyncio.ensure_future(self._carry_out(job, look_after))
                    begun.add(task)
                    task.add_done_callback(begun.discard)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_POLL):
                        await self._cluster.is_called.wait()
                await asyncio.sleep(self._chance.pick((0.0, 0.0, 0.01, 0.1, 1.0)))
                self._cluster.is_called.clear()
        finally:
            if begun:
                await asyncio.wait(begun)
            heart.cancel()

    async def _carry_out(self, job: Job, look_after: Callable[[str], Awaitable[None]]) -> None:
        try:
            await look_after(job.conversation_id)
        except StorageFailed:
            if self._store.is_dead:
                return
            self._cluster.call(job.conversation_id)
        finally:
            if not self._store.is_dead and self._cluster.running.get(job.conversation_id) is job:
                del self._cluster.running[job.conversation_id]
                self._cluster.is_called.set()

    async def _beat(self, lease: float) -> None:
        """Let the heart of this process beat, and take what others look after whose hearts do not."""
        cluster, loop = self._cluster, asyncio.get_running_loop()
        began, sweep = loop.time(), loop.time() + 2 * lease
        while not self._store.is_dead:
            cluster.hearts[self._store.name] = loop.time()
            if loop.time() - began > lease:
                cluster.rescue(lease, loop.time())
            if loop.time() > sweep:
                long_ago = cluster.clock.now() - timedelta(seconds=2 * lease)
                cluster.sweep(self._store.storage.due_before(long_ago))
                sweep = loop.time() + 2 * lease
            await asyncio.sleep(lease / BEATS)


if TYPE_CHECKING:
    _STORE: type[SharedStore] = SharedFaultyStore
