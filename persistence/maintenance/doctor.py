"""Examines a store, and repairs what follows from the rest without guessing.

Of each conversation the doctor asks whether its log is complete and is what was stored, whether the machine would take
the same steps today, whether the log keeps the invariants of every log, and whether the rows beside the log agree with
it. What follows from the log alone can be repaired: the head row, titles and metadata in lists, and deliveries that no
step asked for. Everything else is only reported. A store whose storage can be damaged as a whole reports that itself
(`RepairableStorage`).

A replay checks whether the machine would take the same steps today. An audit checks less, and of every log, whatever
the rules of the machine were when it was written: each answer belongs to an effect that a step asked for, and comes
once; nothing is open when a turn ends; each tool call has its result; and a call that must not run twice did not,
unless a person said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...states.effects import (
    DELIVERY_DEATHS,
    TOOL_RUNS,
    AwaitedEffect,
    ControlEffect,
    Effect,
    ExecuteTool,
    OutgoingEffect,
    RecordedEffect,
    ResumeTool,
)
from ...states.errors import StoreError, UnknownConversation
from ...states.events import Answer, DeadlineReached, DoubtResolved, Event, Request, ToolInterrupted
from ...states.states import State, pending
from ...states.step import LogEntry
from ...states.transcript import transcript
from ...states.values.messages import Message
from ..codec import (
    GENESIS,
    check_end,
    check_link,
    decode,
    decode_state,
    deliveries_checksum,
    digest,
    files_in,
    from_microseconds,
    head_row,
    missing,
    origin_checksum,
)
from ..errors import Damaged, StorageFailed
from ..files import is_fresh
from ..ports import RepairableStorage, Store, find_all
from ..records import (
    ConversationRecord,
    CountDeliveries,
    DetailsRow,
    DropDelivery,
    DropFile,
    EventRow,
    HeadRow,
    KeptFile,
    OutboxRow,
    Repair,
    ReplaceDetails,
    ReplaceHead,
    ResetDelivery,
    StorageFault,
    StoredEntry,
)
from ..summaries import HEADER_COLUMNS, details_of, details_row
from .files import parts_of
from .replay import Fold

LOST_DELIVERY = (
    "The deliveries that wait are not those that were not acknowledged: one is missing, was added, or goes to another"
    " target. What is missing will not be delivered."
)
"""What is wrong with an outbox that does not add up. The log does not say to which channels a text went."""

OTHER_ORIGIN = "The conversation that this one was copied from, or the step, is not the one that was stored."
"""What is wrong with a copy whose origin was changed."""

OTHER_OWNER = "The owner is not the one that the first step names."
"""What is wrong with a conversation whose owner was changed beside the log."""

_DERIVED_COLUMNS = ("state_type", "waits", "next_timer", "updated_at", "wakes_at")
"""The columns of the head row that follow from the state and the newest step."""


@dataclass(frozen=True)
class Finding:
    """What is wrong, in a sentence: with a conversation and one of its steps, or with the storage as a whole. `repair`
    is set if it can be repaired without guessing."""

    sentence: str
    conversation_id: str | None = None
    seq: int | None = None
    repair: Repair | None = None


@dataclass(frozen=True)
class Examination:
    """How much was examined, and what is wrong with it."""

    conversations: int = 0
    steps: int = 0
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: Examination) -> Examination:
        return Examination(
            self.conversations + other.conversations,
            self.steps + other.steps,
            self.findings + other.findings,
        )


async def examine(store: Store) -> Examination:
    """Examine everything in a store, which may be open for reading only and in use by an engine. What cannot be read
    is named, and the rest is examined."""
    result = Examination()
    if isinstance(store, RepairableStorage):
        try:
            result += _of_storage(await store.examine_storage())
        except StorageFailed as failure:
            result += Examination(findings=(Finding(failure.sentence),))
    try:
        ids, faults = await find_all(store)
    except StorageFailed as failure:
        return result + Examination(findings=(Finding(failure.sentence),))
    result += _of_storage(faults)
    for conversation_id in ids:
        result += await _examine(store, conversation_id)
    return result


def _of_storage(faults: Iterable[StorageFault]) -> Examination:
    return Examination(findings=tuple(Finding(fault.sentence, repair=fault.repair) for fault in faults))


async def repair(store: Store, found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Repair what `examine` found, as far as that is possible without guessing, and return what was repaired.

    All repairs are made in one transaction. Between `examine` and this call nobody else may write to the store, so it
    must have been open for writing when it was examined. Raises `StorageFailed`, with nothing repaired, and
    `StoreError` for a store that cannot be repaired.
    """
    repairable = tuple(finding for finding in found if finding.repair is not None)
    if not isinstance(store, RepairableStorage):
        if repairable:
            raise StoreError("A store of this kind cannot be repaired.")
        return ()
    await store.repair(tuple(finding.repair for finding in repairable if finding.repair is not None))
    return repairable


async def _examine(store: Store, conversation_id: str) -> Examination:
    try:
        record = await store.read_record(conversation_id)
    except UnknownConversation:  # deleted meanwhile
        return Examination()
    except StorageFailed as failure:
        return Examination(1, findings=(Finding(failure.sentence, conversation_id),))
    found = await asyncio.to_thread(examine_record, record)
    return found + Examination(findings=tuple([finding async for finding in _of_files(store, record)]))


async def _of_files(store: Store, record: ConversationRecord) -> AsyncIterator[Finding]:
    """What is wrong with the files of a conversation: some are not stored, or are not what was stored, or its log does
    not refer to them."""
    referred = await asyncio.to_thread(files_in, record.steps)
    try:
        kept = {file.sha256: file for file in await store.files.of(record.id)}
        for digest in referred:
            if digest not in kept:
                yield Finding(f"The file {digest}, to which the log refers, is not stored.", record.id)
            elif not await _is_as_stored(store, record.id, kept[digest]):
                yield Finding(f"The file {digest} is not what was stored.", record.id)
    except UnknownConversation:  # deleted meanwhile
        return
    except StorageFailed as failure:
        yield Finding(failure.sentence, record.id)
        return
    for digest, file in kept.items():
        if digest not in referred and not is_fresh(file.mark):
            sentence = f"The file {digest} is kept, and no step refers to it."
            yield Finding(sentence, record.id, repair=DropFile(record.id, digest, file.mark))


async def _is_as_stored(store: Store, conversation_id: str, file: KeptFile) -> bool:
    try:
        async for _ in parts_of(store, conversation_id, file):
            pass
    except Damaged:
        return False
    return True


def examine_record(record: ConversationRecord) -> Examination:
    """Examine one conversation. `Pure.`"""
    subject = _ExaminedConversation(record)
    findings = (*subject.log(), *subject.head(), *subject.details(), *subject.origin(), *subject.deliveries())
    return Examination(1, len(record.steps), findings)


class _ExaminedConversation:
    """A conversation under examination: its rows, the undamaged part of its log, and its state if that is known."""

    def __init__(self, record: ConversationRecord) -> None:
        self._record = record
        self._entries, self._damage = _undamaged_part(record.steps)
        self._fold = Fold()
        takes = (self._fold.take(entry) for entry in self._entries)
        self._divergence = next((divergence for divergence in takes if divergence is not None), None)
        self._state = self._known_state()

    def _known_state(self) -> State | None:
        """Return the state after the newest step if it can be known: the one that the log leads to or, where the rules
        have changed since, the stored one."""
        if self._damage is not None:
            return None
        if self._divergence is None:
            return self._fold.state
        try:
            return decode_state(self._record.head) if self._state_is_as_stored else None
        except Damaged:
            return None

    @property
    def _state_is_as_stored(self) -> bool:
        text = self._record.head.state
        return type(text) is str and digest(text) == self._entries[-1].digest

    def log(self) -> Iterator[Finding]:
        """What is wrong with the log: damage, other steps than the machine takes today, a broken invariant."""
        if self._damage is not None:
            yield self._finding(self._damage.seq, self._damage.sentence)
        if self._divergence is not None:
            yield self._finding(self._divergence.seq, self._divergence.reason)
        if self._state is not None:
            yield from (self._finding(seq, sentence) for seq, sentence in audit(self._entries, self._state))

    def head(self) -> Iterator[Finding]:
        """What is wrong with the head row."""
        if self._damage is not None:
            return
        newest = self._record.steps[-1]
        try:
            check_end(self._record.head, newest.seq, newest.chain)
        except Damaged as damage:
            yield self._finding(damage.seq, damage.sentence)
            return
        if self._state is None:
            yield self._finding(newest.seq, f"The state behind step {newest.seq} is not what was stored.")
        else:
            written = self._record.head.state if self._state_is_as_stored else self._state.to_json()
            yield from self._compare(head_row(self._state, written, newest))

    def _compare(self, expected: HeadRow) -> Iterator[Finding]:
        """How the head row differs from what it must be."""
        replace = ReplaceHead(self._record.id, expected)
        if not self._state_is_as_stored:
            sentence = f"The state that is stored is not the one that step {expected.seq} leads to."
            yield self._finding(expected.seq, sentence, replace)
        for column in _DERIVED_COLUMNS:
            if getattr(self._record.head, column) != getattr(expected, column):
                sentence = f"The column {column} does not agree with the state and the newest step."
                yield self._finding(expected.seq, sentence, replace)

    def details(self) -> Iterator[Finding]:
        """How the owner and what lists show differ from what the log says."""
        if self._damage is not None:
            return
        details, stored = details_of(self._entries), self._record.details
        owner = self._record.owner if details.owner is None else details.owner
        expected = details_row(details)
        replace = ReplaceDetails(self._record.id, owner, expected)
        if self._record.owner != owner:
            yield self._finding(1, OTHER_OWNER, replace)
        if stored is not None and (others := _other_fields(stored, expected)):
            sentence = f"What lists show does not agree with the steps: {', '.join(others)}."
            yield self._finding(1, sentence, replace)

    def origin(self) -> Iterator[Finding]:
        """Whether the conversation is a copy of another one, or of other steps, than when it was made."""
        origin, checksum = self._record.origin, self._record.origin_checksum
        if origin is None or checksum is None or self._damage is not None:
            return
        seq = origin.seq
        is_copied = type(seq) is int and 0 < seq <= len(self._entries)
        chain = self._entries[seq - 1].chain if is_copied else None
        if origin_checksum(origin.conversation_id, seq, chain) != checksum:
            yield self._finding(1, OTHER_ORIGIN)

    def deliveries(self) -> Iterator[Finding]:
        """Which deliveries cannot be made, because no step asked for them or their attempts cannot be read; and whether
        the others are those that were not acknowledged."""
        asked_for = {
            (entry.seq, effect.effect_id)
            for entry in self._entries
            for effect in entry.effects
            if isinstance(effect, OutgoingEffect)
        }
        waiting: list[OutboxRow] = []
        for row in self._record.outbox:
            it = (self._record.id, row.target, row.effect_id)
            if self._damage is None and (row.seq, row.effect_id) not in asked_for:
                sentence = f"A delivery waits for the effect {row.effect_id}, which step {row.seq} did not ask for."
                yield self._finding(row.seq, sentence, DropDelivery(*it))
                continue
            waiting.append(row)
            if self._damage is None and not is_readable(row):
                sentence = f"The attempts to deliver the effect {row.effect_id} cannot be read."
                yield self._finding(row.seq, sentence, ResetDelivery(*it))
            elif self._damage is None and row.begun >= DELIVERY_DEATHS:
                sentence = f"The delivery of the effect {row.effect_id} is left out: processes died in each attempt."
                yield self._finding(row.seq, sentence, ResetDelivery(*it))
        if self._record.outbox_checksum not in (None, deliveries_checksum(waiting)):
            yield self._finding(len(self._record.steps), LOST_DELIVERY, CountDeliveries(self._record.id))

    def _finding(self, seq: int, sentence: str, repair: Repair | None = None) -> Finding:
        return Finding(sentence, self._record.id, seq, repair)


def is_readable(row: OutboxRow) -> bool:
    """Whether it can be read how often the delivery was tried and when it is due."""
    try:
        due = None if row.next_attempt is None else from_microseconds(row.next_attempt)
    except (TypeError, OverflowError):
        return False
    return type(row.attempts) is int and type(row.begun) is int and (due is None or type(row.next_attempt) is int)


def _undamaged_part(rows: Iterable[EventRow]) -> tuple[list[StoredEntry], Damaged | None]:
    """Return the steps up to the first that is missing or was changed, and what is wrong with that one."""
    entries: list[StoredEntry] = []
    try:
        for row in rows:
            entry = decode(row)
            check_link(entry, len(entries), entries[-1].chain if entries else GENESIS)
            entries.append(entry)
    except Damaged as damage:
        return entries, damage
    return entries, None if entries else missing(1)


class Fault(NamedTuple):
    """A broken invariant, in a sentence; the log breaks it at the step `seq`."""

    seq: int
    sentence: str


def audit(entries: Sequence[LogEntry], state: State) -> Iterator[Fault]:
    """Yield what is wrong with an undamaged log, and with the state after its newest step. `Pure.`"""
    effects = _EffectLedger()
    for entry in entries:
        yield from (Fault(entry.seq, sentence) for sentence in effects.take(entry))
    if pending(state) != effects.open.keys():
        awaited, unanswered = _named(pending(state)), _named(effects.open.keys())
        yield Fault(state.book.seq, f"The conversation waits for {awaited}, and what was not answered is {unanswered}.")
    yield from _unpaired(entries)


class _EffectLedger:
    """The effects that the steps asked for, and what came of each, recorded step by step."""

    def __init__(self) -> None:
        self.open: dict[int, AwaitedEffect] = {}
        self._requests: set[str] = set()
        self._ids: set[int] = set()
        """The ids of all effects that a step asked for."""
        self._answered: set[int] = set()
        self._stopping: set[int] = set()
        """The effects that were aborted and have still to acknowledge it."""
        self._run: set[str] = set()
        """The calls that ran and must not run again."""

    def take(self, entry: LogEntry) -> Iterator[str]:
        """Record a step, and yield what is wrong with it."""
        yield from self._record_event(entry.event)
        asked_for = [effect.effect_id for effect in entry.effects if isinstance(effect, AwaitedEffect)]
        for effect in entry.effects:
            yield from self._record_effect(effect)
        if entry.ended is not None:
            self._give_up_stopping()
            if left := self.open.keys() - set(asked_for):
                yield f"The turn {entry.ended.turn} ended while {_named(left)} was open."
        if isinstance(entry.event, DeadlineReached):
            self._give_up_stopping()

    def _record_event(self, event: Event) -> Iterator[str]:
        if isinstance(event, Request):
            if event.event_id in self._requests:
                yield "The request was taken before."
            self._requests.add(event.event_id)
        if isinstance(event, Answer):
            yield from self._answer(event.effect_id)
        elif isinstance(event, ToolInterrupted):
            self._interrupt(event.call_id)
        elif isinstance(event, DoubtResolved) and event.verdict == "again":
            self._run.discard(event.call_id)

    def _answer(self, effect_id: int) -> Iterator[str]:
        if effect_id in self._answered:
            yield f"The effect {effect_id} is answered a second time."
        elif effect_id not in self._ids:
            yield f"The effect {effect_id} is answered, and no step asked for it."
        elif effect_id not in self.open:
            yield f"The effect {effect_id} is answered, and was no longer awaited."
        self._answered.add(effect_id)
        self._close(effect_id)

    def _interrupt(self, call_id: str) -> None:
        for effect_id, effect in list(self.open.items()):
            if isinstance(effect, TOOL_RUNS) and effect.call.call_id == call_id:
                self._close(effect_id)

    def _record_effect(self, effect: Effect) -> Iterator[str]:
        if isinstance(effect, ControlEffect):
            self._stop(effect.effect_id)
        elif isinstance(effect, OutgoingEffect | RecordedEffect):
            if effect.effect_id in self._ids:
                yield f"Two effects have the id {effect.effect_id}."
            self._ids.add(effect.effect_id)
        elif isinstance(effect, AwaitedEffect):
            if effect.effect_id in self._answered:
                yield f"The effect {effect.effect_id} is asked for again, and was answered before."
            if isinstance(effect, ExecuteTool):
                yield from self._run_once(effect)
            if isinstance(effect, ResumeTool) and effect.reply == "cancelled":
                self._stopping.add(effect.effect_id)
            self._ids.add(effect.effect_id)
            self.open[effect.effect_id] = effect

    def _run_once(self, effect: ExecuteTool) -> Iterator[str]:
        call_id = effect.call.call_id
        if effect.call.crash != "at_most_once":
            return
        if call_id in self._run:
            yield f"The call {call_id} runs again, and must not run twice."
        self._run.add(call_id)

    def _stop(self, effect_id: int) -> None:
        """Keep an effect open that acknowledges an abort; every other one is closed."""
        effect = self.open.get(effect_id)
        if effect is not None and effect.ACKNOWLEDGES is not None:
            self._stopping.add(effect_id)
        else:
            self._close(effect_id)

    def _give_up_stopping(self) -> None:
        """Close the effects that did not stop in time."""
        for effect_id in list(self._stopping):
            self._close(effect_id)

    def _close(self, effect_id: int) -> None:
        self.open.pop(effect_id, None)
        self._stopping.discard(effect_id)


def _unpaired(entries: Sequence[LogEntry]) -> Iterator[Fault]:
    """Yield the calls without a result and the results without a call, in the turns that have ended."""
    ends = [index for index, entry in enumerate(entries, start=1) if entry.ended is not None]
    if not ends:
        return
    seq = entries[ends[-1] - 1].seq
    try:
        messages = transcript(entries[: ends[-1]])
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError):
        yield Fault(seq, "What was said cannot be read from the steps.")
        return
    for call_id, sentence in _calls_without_result(messages):
        yield Fault(seq, sentence.format(call_id))


def _calls_without_result(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield call_id, "The result of the call {} has no call, or is not the only one."
        else:
            yield from ((call_id, "The call {} has no result.") for call_id in waiting)
            waiting = [call.call_id for call in message.tool_calls]
    yield from ((call_id, "The call {} has no result.") for call_id in waiting)


def _named(effect_ids: Iterable[int]) -> str:
    ids = sorted(effect_ids)
    return " and ".join(f"the effect {each}" for each in ids) if ids else "nothing"


def _other_fields(stored: DetailsRow, expected: DetailsRow) -> tuple[str, ...]:
    """Return the names of what differs in the two rows. `Pure.`"""
    columns = zip(HEADER_COLUMNS, stored.header, expected.header, strict=True)
    others = [name for name, one, other in columns if one != other]
    if stored.first_message != expected.first_message:
        others.append("first message")
    if stored.entries != expected.entries:
        others.append("index of the metadata")
    return tuple(others)
