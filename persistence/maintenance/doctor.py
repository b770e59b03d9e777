"""Examines a store, and repairs what follows from the rest without guessing.

Of each conversation the doctor asks whether its log is complete and is what was stored, whether the machine would take
the same steps today, whether the log keeps the invariants of every log, and whether the rows beside the log agree with
it. What follows from the log alone can be repaired: the head row, titles and metadata in lists, and deliveries that no
step asked for. Everything else is only reported. A store whose storage can be damaged as a whole reports that itself
(`RepairableStorage`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...states.effects import DELIVERY_DEATHS, OutgoingEffect
from ...states.errors import StoreError, UnknownConversation
from ...states.states import State
from ..errors import Damaged, StorageFailed
from ..ports import RepairableStorage, Store, find_all
from ..records.codec import decode, decode_state, from_microseconds, head_row
from ..records.conversation_record import ConversationRecord
from ..records.details import details_of, details_row
from ..records.digests import GENESIS, deliveries_checksum, digest, origin_checksum
from ..records.entry import StoredEntry
from ..records.integrity import check_end, check_link, missing
from ..records.rows import EventRow, HeadRow, OutboxRow
from ..records.storage import (
    CountDeliveries,
    DropDelivery,
    Repair,
    ReplaceDetails,
    ReplaceHead,
    ResetDelivery,
    StorageFault,
)
from .audit import audit
from .replay import Fold

LOST_DELIVERY = (
    "The deliveries that wait are not those that were not acknowledged: one is missing, was added, or goes to another"
    " target. What is missing will not be delivered."
)
"""What is wrong with an outbox that does not add up. The log does not say to which channels a text went."""

OTHER_ORIGIN = "The conversation that this one was copied from, or the step, is not the one that was stored."
"""What is wrong with a copy whose origin was changed."""

DERIVED_COLUMNS = ("state_type", "waits", "next_timer", "updated_at", "wakes_at")
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
    return await asyncio.to_thread(examine_record, record)


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
        for column in DERIVED_COLUMNS:
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
            yield self._finding(1, "The owner is not the one that the first step names.", replace)
        if stored is not None and stored != expected:
            named = "The title or the metadata" if stored.agent == expected.agent else "The role"
            yield self._finding(1, f"{named} in lists does not agree with the steps.", replace)

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
            if self._damage is None and not _is_readable(row):
                sentence = f"The attempts to deliver the effect {row.effect_id} cannot be read."
                yield self._finding(row.seq, sentence, ResetDelivery(*it))
            elif self._damage is None and row.begun >= DELIVERY_DEATHS:
                sentence = f"The delivery of the effect {row.effect_id} is left out: processes died in each attempt."
                yield self._finding(row.seq, sentence, ResetDelivery(*it))
        if self._record.outbox_checksum not in (None, deliveries_checksum(waiting)):
            yield self._finding(len(self._record.steps), LOST_DELIVERY, CountDeliveries(self._record.id))

    def _finding(self, seq: int, sentence: str, repair: Repair | None = None) -> Finding:
        return Finding(sentence, self._record.id, seq, repair)


def _is_readable(row: OutboxRow) -> bool:
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
