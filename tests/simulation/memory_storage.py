"""What outlives the engines of a simulation: a store in memory, which takes its time and fails at bad moments.

It does what a real one promises: a step is stored whole or not at all, and only if it follows the newest one. Each step
is stored as JSON, and read from there. Several processes may have the store open at once. What an engine must never try
is reported as a fault at once, whatever would come of it later.

As in a real store, a receipt is stored with the next step of its process, or when the store is closed. A process that
dies before has handed something over that is still in the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pydantic import TypeAdapter

from turnwise.states.context import Context
from turnwise.states.effects import AnyEffect, AwaitedEffect, Effect
from turnwise.states.errors import StoreError, UnknownConversation
from turnwise.states.events import Answer, AnyEvent, Event, Opened, Request
from turnwise.states.states import AnyState, AwaitingUserResponse
from turnwise.states.step import Step
from turnwise.states.values.turn import TurnEnded

from .environment import EventTrace, RandomSource

if TYPE_CHECKING:
    from turnwise.persistence.errors import StorageFailed, StoreConflict
    from turnwise.persistence.ports import LoadedConversation, Log, Store
    from turnwise.persistence.records import ConversationRecord, StoredEntry, Undelivered
    from turnwise.persistence.summaries import ConversationFilter, Summary

Delivered: TypeAlias = tuple[str, str, int]
"""A delivery: its conversation, the name of its channel, and its effect."""


class Storage(Protocol):
    """What is stored, through all processes that have it open."""

    @property
    def settled(self) -> set[Delivered]:
        """The deliveries that were taken out of the outbox."""
        ...

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        ...

    def outbox(self) -> Iterable[Delivered]:
        """What is still to be delivered."""
        ...

    def faults(self) -> Iterable[str]:
        """What is wrong with what is stored, at the end of the simulation."""
        ...

    def close(self) -> None:
        """Remove what is stored."""
        ...


class Process(Protocol):
    """A process that has the store open. Once it is dead it stores nothing, and nobody hears what it says."""

    @property
    def name(self) -> str:
        """What tells it apart from all others of the simulation."""
        ...

    @property
    def store(self) -> Store:
        """The store, as this process has it open."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the process has died."""
        ...

    def die_after(self, statements: int) -> None:
        """Have the process die once it has done so many more statements that write."""
        ...


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
        from turnwise.persistence.ports import LoadedConversation

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

    async def list(self, wanted: ConversationFilter | None = None) -> tuple[Summary, ...]:
        """Summaries, the conversation that moved last first."""
        from turnwise.persistence.summaries import EVERYTHING

        self.check_alive()
        await disk_time(self.disk.chance)
        newest = sorted(self.disk.rows, key=self.disk.moved.__getitem__, reverse=True)
        return (wanted or EVERYTHING).page_of([_summary(id_, self.disk.rows[id_]) for id_ in newest])

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


MISREPORTED = 0.2
"""How many of the failed attempts to store an answer have stored it all the same."""


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


LogKey: TypeAlias = tuple[str, int]
"""The key of a conversation: its id, and how many conversations with this id were deleted before it was created."""


@dataclass
class Disk:
    """The steps of all conversations. `failing` is the probability that a step cannot be stored."""

    chance: RandomSource
    trace: EventTrace
    failing: float = 0.0
    rows: dict[str, list[Row]] = field(default_factory=dict)
    deleted: dict[str, list[list[Row]]] = field(default_factory=dict)
    """The logs of the conversations that were deleted, by the id that they had, in the order of their deletion. A
    conversation may be created under the id of a deleted one."""
    began: dict[LogKey, int] = field(default_factory=dict)
    """For each conversation the number of lines in the trace when it was created."""
    ended: dict[LogKey, int] = field(default_factory=dict)
    """For each conversation that was deleted the number of lines in the trace when it was."""
    moved: dict[str, int] = field(default_factory=dict)
    """For each conversation the number of its newest step among all steps."""
    identities: dict[str, set[str | int | None]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """What conversations are called in the trace, where there are several; sub-agents after the one above them."""
    followers: list[Callable[[str, Row], None]] = field(default_factory=list)
    """Who is told of each step, with its conversation, once it is stored."""

    def add(self, conversation_id: str, event: Event, step: Step, writer: str) -> Row:
        """Store a step. Raises ValueError if it cannot be written as JSON and read back."""
        row = self._linked(conversation_id, Row.of(event, step, writer))
        if (row.event, row.effects, row.ended, row.state) != (event, step.effects, step.ended, step.state):
            self.trace.report_fault(f"step {row.seq}, {event.type}, is not read as it was written: {row.text[:300]}")
        self.keep(conversation_id, row)
        return row

    def _linked(self, conversation_id: str, row: Row) -> Row:
        """The row with its link, which depends on all rows before it."""
        from turnwise.persistence.codec import GENESIS, digest, link

        rows = self.rows.get(conversation_id)
        return replace(row, chain=link(rows[-1].chain if rows else GENESIS, digest(row.text)))

    def keep(self, conversation_id: str, row: Row) -> None:
        """Keep a step that is stored."""
        self.rows.setdefault(conversation_id, []).append(row)
        self.began.setdefault(self.key_of(conversation_id), len(self.trace.lines))
        self.moved[conversation_id] = len(self.trace.lines)
        self.identities.setdefault(conversation_id, set()).add(identity(row.event))
        effects = " ".join(_short(effect) for effect in row.effects)
        stored = f"{row.seq}: {row.event.type} -> {row.state.type}   {effects}"
        self.trace.record("store", f"{row.writer} {self.name(conversation_id)}{stored}")
        for follower in self.followers:
            follower(conversation_id, row)

    def name(self, conversation_id: str) -> str:
        """What a conversation is called in the trace, with a space behind it; empty if it has no name there."""
        root, slash, rest = conversation_id.partition("/")
        return f"{self.names[root]}{slash}{rest} " if root in self.names else ""

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation."""
        self.ended[self.key_of(conversation_id)] = len(self.trace.lines)
        self.deleted.setdefault(conversation_id, []).append(self.rows.pop(conversation_id))
        self.identities.pop(conversation_id, None)
        self.trace.record("store", f"{self.name(conversation_id)}is deleted")

    def logs_of(self, conversation_id: str) -> list[list[Row]]:
        """The logs of all conversations that have had this id: those that were deleted, then the stored one."""
        stored = self.rows.get(conversation_id)
        return [*self.deleted.get(conversation_id, ()), *(() if stored is None else (stored,))]

    def key_of(self, conversation_id: str) -> LogKey:
        """The key of the conversation that is stored under this id, or that was deleted last."""
        return conversation_id, max(0, len(self.logs_of(conversation_id)) - 1)

    def steps_of(self, conversation_id: str) -> Sequence[Row]:
        """The steps of the conversation that is stored under this id, or that was deleted last; none if there never was
        one."""
        logs = self.logs_of(conversation_id)
        return logs[-1] if logs else ()

    def head(self, conversation_id: str) -> AnyState:
        """The state that the conversation rests in, as stored, or in which it was deleted."""
        return self.steps_of(conversation_id)[-1].state

    @property
    def steps(self) -> int:
        """How many steps are stored."""
        return sum(map(len, self.rows.values()))

    def text(self) -> str:
        """Everything that is stored, for comparison."""
        return "\n".join(row.text for rows in self.rows.values() for row in rows)


def _short(effect: Effect) -> str:
    effect_id = getattr(effect, "effect_id", None)
    return effect.type if effect_id is None else f"{effect.type}:{effect_id}"


_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)

_EFFECTS: TypeAdapter[tuple[Effect, ...]] = TypeAdapter(tuple[AnyEffect, ...])

_STATE: TypeAdapter[AnyState] = TypeAdapter(AnyState)


@dataclass(frozen=True)
class Row:
    """A step as it is stored: JSON, and what is read from it. `writer` is the name of the process that stored it, and
    `chain` the link of the step."""

    seq: int
    text: str
    event: AnyEvent
    effects: tuple[Effect, ...]
    ended: TurnEnded | None
    state: AnyState
    writer: str = ""
    chain: bytes = b""

    @classmethod
    def of(cls, event: Event, step: Step, writer: str) -> Row:
        """Write a step as JSON and read it back. Raises ValueError if that cannot be done."""
        ended = "" if step.ended is None else step.ended.to_json()
        effects = _array(step.effects)
        written, state = event.to_json(), step.state.to_json()
        return cls(
            seq=step.state.book.seq,
            text="\n".join((written, effects, ended, state)),
            event=_EVENT.validate_json(written),
            effects=_EFFECTS.validate_json(effects),
            ended=TurnEnded.model_validate_json(ended) if ended else None,
            state=_STATE.validate_json(state),
            writer=writer,
        )

    @classmethod
    def read(cls, entry: StoredEntry, state: str, writer: str) -> Row:
        """A step as a database holds it, with the state after it as JSON."""
        ended = "" if entry.ended is None else entry.ended.to_json()
        text = "\n".join((entry.event.to_json(), _array(entry.effects), ended, state))
        read = _STATE.validate_json(state)
        return cls(entry.seq, text, entry.event, entry.effects, entry.ended, read, writer, entry.chain)

    @property
    def entry(self) -> StoredEntry:
        """The step as an entry of the log; it has no digests but its link."""
        from turnwise.persistence.records import StoredEntry

        return StoredEntry(
            self.seq,
            self.event,
            self.effects,
            self.ended,
            self.state.book.turn,
            digest=b"",
            chain=self.chain,
            content=b"",
        )


def _array(effects: tuple[Effect, ...]) -> str:
    return f"[{','.join(effect.to_json() for effect in effects)}]"


def identity(event: Event) -> str | int | None:
    """What the log may hold once only: the id of a request, or of the effect that is answered. `Pure.`"""
    return event.event_id if isinstance(event, Request) else event.effect_id if isinstance(event, Answer) else None


class MemoryOutbox:
    """The outbox of all conversations. `settled` is what was taken out of it."""

    def __init__(self) -> None:
        self.entries: dict[Delivered, OutboxEntry] = {}
        self.settled: set[Delivered] = set()

    def add(self, conversation_id: str, seq: int, writer: str, targets: Iterable[tuple[int, str]]) -> None:
        """Store what a step hands over."""
        for effect_id, target in targets:
            self.entries[conversation_id, target, effect_id] = OutboxEntry(seq, writer)

    def store_receipts(self, receipts: list[Receipt]) -> None:
        """Store these receipts, and leave none of them in the list."""
        for receipt in receipts:
            entry = self.entries.get(receipt.delivered)
            if entry is None:
                continue
            if receipt.next_attempt is None:
                del self.entries[receipt.delivered]
                self.settled.add(receipt.delivered)
            else:
                self.entries[receipt.delivered] = replace(
                    entry, attempts=receipt.attempts, next_attempt=receipt.next_attempt, begun=0
                )
        receipts.clear()

    def begin(self, delivered: Delivered, begun: int) -> None:
        """Store that an attempt begins at what an earlier process has left."""
        if (entry := self.entries.get(delivered)) is not None:
            self.entries[delivered] = replace(entry, begun=begun)

    def drop(self, conversation_id: str) -> None:
        """Remove what belongs to a conversation that was deleted."""
        for delivered in [one for one in self.entries if one[0] == conversation_id]:
            del self.entries[delivered]

    def writers_of(self, conversation_id: str) -> set[str]:
        """The names of the processes that have put something into the outbox which is still in it."""
        return {entry.writer for delivered, entry in self.entries.items() if delivered[0] == conversation_id}

    def undelivered(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """What is in the outbox of these conversations, for each target in the order in which it was stored."""
        from turnwise.persistence.records import Undelivered

        wanted = set(conversation_ids)
        found = [
            Undelivered(*delivered, entry.seq, entry.attempts, entry.next_attempt, entry.begun)
            for delivered, entry in self.entries.items()
            if delivered[0] in wanted
        ]
        return tuple(sorted(found, key=lambda one: (one.conversation_id, one.target, one.seq, one.effect_id)))


@dataclass(frozen=True)
class OutboxEntry:
    """What is to reach one target: the step that stored it, the process that did, and the attempts so far."""

    seq: int
    writer: str
    attempts: int = 0
    next_attempt: datetime | None = None
    begun: int = 0


@dataclass(frozen=True)
class Receipt:
    """What became of an attempt: it has arrived, or the next attempt is due at `next_attempt`."""

    delivered: Delivered
    attempts: int = 0
    next_attempt: datetime | None = None


async def disk_time(chance: RandomSource) -> None:
    """The time that a disk takes: often none, not even another task's turn."""
    if chance.probably(0.5):
        await asyncio.sleep(chance.pick((0.0, 0.0, 0.001, 0.02, 1.0)))


def failed() -> StorageFailed:
    """The error of a disk that takes nothing."""
    from turnwise.persistence.errors import StorageFailed

    return StorageFailed("The disk is full.")


def conflict() -> StoreConflict:
    """The error of a step that another one has overtaken."""
    from turnwise.persistence.errors import StoreConflict

    return StoreConflict("The step does not follow the newest step of its conversation.")


def _summary(conversation_id: str, rows: Sequence[Row]) -> Summary:
    from turnwise.persistence.summaries import Details, summary_in_state

    details = Details()
    for row in rows:
        details = details.after(row.event)
    return summary_in_state(conversation_id, rows[-1].state, rows[-1].event.at, details)


def wake_ups(disk: Disk, limit: int) -> tuple[tuple[str, datetime], ...]:
    """What `Store.scheduled` returns. `Pure.`"""
    scheduled = ((id_, rows[-1].state.book.wake) for id_, rows in disk.rows.items())
    return tuple(sorted(((id_, due) for id_, due in scheduled if due is not None), key=lambda each: each[1])[:limit])
