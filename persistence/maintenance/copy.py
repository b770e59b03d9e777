"""Copies the conversations of one store into another one, of whatever kind the two are.

A copy goes on where its original stood: with its owner, its origin, its questions, timers, schedules and deliveries. So
it is meant for a move, after which nobody opens the source any more. Otherwise both would act, and a tool that must not
run twice would. While an engine still uses the source, only what rests there is copied (`only_at_rest`); another copy
brings the rest.

Of each conversation its rows are copied as they are, digests and all. What was damaged is left out. Each is read back
from the target and compared before it counts as copied. A conversation is written in one transaction, so a copy may be
interrupted at any moment; the next one passes over what is there and equal. What a store derives from the rows (what
lists show, the index of texts) the target makes itself. Vectors of texts are not copied; the engine that wants them has
them made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

from ...states.errors import InvalidInput, StoreError, UnknownConversation
from ..codec import decode_state, deliveries_checksum, head_row, origin_checksum, read_record
from ..errors import Damaged, StorageFailed, StoreConflict, TracesLeft
from ..ports import Store
from ..records import ConversationRecord, EventRow
from ..summaries import details_of_rows
from .doctor import LOST_DELIVERY, OTHER_ORIGIN, OTHER_OWNER, is_readable
from .files import copy_files

T = TypeVar("T")

Outcome = Literal["copied", "renewed", "there", "ahead", "under_way", "gone", "left_out"]
"""What became of a conversation:

- `copied`: it was not in the target, and is now.
- `renewed`: an earlier copy was there. The original has gone on since, or delivered something, and the copy has not.
- `there`: it was in the target already, equal row by row.
- `ahead`: an earlier copy is there and has gone on by itself, so it stays as it is.
- `under_way`: it does not rest, and only what rests is copied.
- `gone`: it was deleted from the source meanwhile.
- `left_out`: it is damaged, or the target has another conversation of this id, or cannot store this one; the sentence
  says why.
"""


@dataclass(frozen=True)
class Copied:
    """What became of one conversation, and how many steps it has in the source."""

    conversation_id: str
    outcome: Outcome
    steps: int = 0
    sentence: str = ""


AT_ONCE = 8
"""How many conversations are read at once: fewer than a store has connections. A server answers several in the time of
one."""

BATCH_SIZE = 4_000_000
"""How many characters of conversations are collected before they are written in one transaction. A longer conversation
is written alone. A commit takes milliseconds, so that many small conversations are written at the speed of the disk."""

BATCH_COUNT = 200
"""How many conversations are written in one transaction at most: one that is interrupted is done again."""


async def copy_conversations(
    source: Store, target: Store, ids: Iterable[str], *, only_at_rest: bool = False
) -> AsyncIterator[Copied]:
    """Copy the conversations with these `ids`, and yield what became of each, once it is certain.

    With `only_at_rest` a conversation is passed over if it waits for work, for a timer, for its next wake-up or for a
    delivery. The memory that this needs does not grow with the number of conversations, apart from their ids.

    Raises `StorageFailed` if the target cannot be written or read just now. What was copied until then stays.
    """
    batch = _Batch(source, target)
    async for each in _looked_at(source, target, ids, only_at_rest=only_at_rest):
        if isinstance(each, Copied):
            yield each
            continue
        batch.add(each)
        if batch.is_full:
            for copied in await batch.write():
                yield copied
    for copied in await batch.write():
        yield copied


async def _looked_at(
    source: Store, target: Store, ids: Iterable[str], *, only_at_rest: bool
) -> AsyncIterator[ConversationRecord | Copied]:
    """Yield each conversation, in order: those that are to be written, and of the others what became of them."""
    stored = frozenset(await target.ids())

    async def look_at(conversation_id: str) -> ConversationRecord | Copied:
        record = await _read(source, conversation_id)
        if isinstance(record, Copied):
            return record
        if only_at_rest and _is_under_way(record):
            return Copied(record.id, "under_way", len(record.steps))
        return await _renew(source, target, record) if conversation_id in stored else record

    for portion in _portions(ids):
        for each in await _at_once(map(look_at, portion)):
            yield each


def _portions(given: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Yield as many of these together as are worked on at once."""
    rest = iter(given)
    while portion := tuple(islice(rest, AT_ONCE)):
        yield portion


async def _at_once(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do these works at once. If one raises, the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _read(source: Store, conversation_id: str) -> ConversationRecord | Copied:
    """Return a conversation of which everything is as it was stored, or why it cannot be copied."""
    try:
        record = await source.read_record(conversation_id)
        await asyncio.to_thread(_verify, record)
    except UnknownConversation:
        return Copied(conversation_id, "gone")
    except (Damaged, StorageFailed) as error:
        return Copied(conversation_id, "left_out", sentence=error.sentence)
    return record


def _verify(record: ConversationRecord) -> None:
    """Raise `Damaged` unless the rows of a conversation are what was stored. `Pure.`"""
    read_record(record)
    if head_row(decode_state(record.head), record.head.state, record.steps[-1]) != record.head:
        raise Damaged(record.head.seq, _OTHER_HEAD)
    if details_of_rows(record.steps).owner not in (None, record.owner):
        raise Damaged(1, OTHER_OWNER)
    if not all(map(is_readable, record.outbox)):
        raise Damaged(record.head.seq, _UNREADABLE_DELIVERY)
    if record.outbox_checksum not in (None, deliveries_checksum(record.outbox)):
        raise Damaged(len(record.steps), LOST_DELIVERY)
    origin = record.origin
    if origin is not None and record.origin_checksum is not None:
        is_copied = type(origin.seq) is int and 0 < origin.seq <= len(record.steps)
        chain = record.steps[origin.seq - 1].chain if is_copied else None
        if origin_checksum(origin.conversation_id, origin.seq, chain) != record.origin_checksum:
            raise Damaged(1, OTHER_ORIGIN)


_OTHER_HEAD = "Its row does not agree with its state and its newest step; `turnwise doctor --fix` repairs that."
_UNREADABLE_DELIVERY = "The attempts to deliver what waits cannot be read; `turnwise doctor --fix` repairs that."


def _is_under_way(record: ConversationRecord) -> bool:
    """Whether an engine would act for the conversation by itself, now or later. `Pure.`"""
    head = record.head
    return bool(head.waits or record.outbox) or head.next_timer is not None or head.wakes_at is not None


class _Batch:
    """Conversations that are written in one transaction."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source = source
        self._target = target
        self._records: list[ConversationRecord] = []
        self._size = 0

    def add(self, record: ConversationRecord) -> None:
        """Collect a conversation that the target does not have."""
        self._records.append(record)
        self._size += len(record.head.state) + sum(map(_size, record.steps))

    @property
    def is_full(self) -> bool:
        """Whether it is time to write."""
        return self._size >= BATCH_SIZE or len(self._records) >= BATCH_COUNT

    async def write(self) -> list[Copied]:
        """Write what was collected, and return what became of each. If the target refuses one of them, all are written
        one by one, so that only this one is left out."""
        records, self._records, self._size = self._records, [], 0
        try:
            for record in records:
                await copy_files(self._source, self._target, record, kept=False)
            await self._target.write_records(records)
        except StorageFailed:
            raise
        except (StoreError, InvalidInput):
            return [await _write_alone(self._source, self._target, record) for record in records]
        portions = (
            (_verified(self._source, self._target, each, "copied") for each in portion)
            for portion in _portions(records)
        )
        return [copied for portion in portions for copied in await _at_once(portion)]


def _size(row: EventRow) -> int:
    return len(row.payload) + len(row.effects or "") + len(row.ended or "")


async def _write_alone(source: Store, target: Store, record: ConversationRecord) -> Copied:
    try:
        await target.write_records([record])
    except StoreConflict:  # somebody else has stored one of this id meanwhile
        return await _renew(source, target, record)
    except StorageFailed:
        raise
    except (StoreError, InvalidInput) as error:
        return Copied(record.id, "left_out", len(record.steps), error.sentence)
    return await _verified(source, target, record, "copied")


async def _verified(source: Store, target: Store, record: ConversationRecord, outcome: Outcome) -> Copied:
    """Read a conversation that was written, compare it with the original, and see to it that its files are there. An
    engine of the target may have gone on with it already."""
    try:
        written = await target.read_record(record.id)
    except UnknownConversation:
        return Copied(record.id, "left_out", len(record.steps), "It was deleted from the target meanwhile.")
    if _plain(written) == _plain(record) or _is_later(written, record):
        return await _with_files(source, target, record, outcome)
    return Copied(record.id, "left_out", len(record.steps), _NOT_AS_WRITTEN)


async def _with_files(source: Store, target: Store, record: ConversationRecord, outcome: Outcome) -> Copied:
    """Copy the files that the target does not have for this conversation."""
    try:
        fault = await copy_files(source, target, record, kept=True)
    except UnknownConversation:
        fault = "It was deleted meanwhile."
    return Copied(record.id, outcome if fault is None else "left_out", len(record.steps), fault or "")


_NOT_AS_WRITTEN = "What the target returns is not what was written into it."
_ANOTHER = "There is another conversation of this id in the target, which stays as it is."
_BOTH = "It has gone on both in the source and in the target, where it stays as it is."
_BESIDE = "The target has the same steps, and other rows beside them: examine it with `turnwise doctor`."


async def _renew(source: Store, target: Store, record: ConversationRecord) -> Copied:
    """Compare a conversation with the one of its id in the target, and replace that one if the original has gone on
    since, and the copy has not."""
    try:
        stored = await target.read_record(record.id)
    except UnknownConversation:  # deleted meanwhile
        return await _write_alone(source, target, record)
    steps = len(record.steps)
    if _plain(stored) == _plain(record):
        return await _with_files(source, target, record, "there")
    if _is_later(stored, record):
        return Copied(record.id, "ahead", steps)
    record = _without_delivered(record, stored)
    if not _is_later(record, stored):
        return Copied(record.id, "left_out", steps, _difference(stored, record))
    with suppress(TracesLeft):  # its steps are written again at once
        await target.delete(record.id)
    await target.write_records([record])
    return await _verified(source, target, record, "renewed")


def _plain(record: ConversationRecord) -> ConversationRecord:
    """Return a conversation without what a store computes from its rows. `Pure.`"""
    return record._replace(details=None, outbox_checksum=None, origin_checksum=None)


def _is_later(one: ConversationRecord, other: ConversationRecord) -> bool:
    """Whether this is the other conversation some time later: it has more steps, or as many and no other deliveries.
    `Pure.`"""
    if _identity(one) != _identity(other) or one.steps[: len(other.steps)] != other.steps:
        return False
    if len(one.steps) > len(other.steps):
        return True
    return (one.owner, one.head) == (other.owner, other.head) and _deliveries(one) <= _deliveries(other)


def _identity(record: ConversationRecord) -> tuple[object, ...]:
    return record.id, record.created_at, record.parent, record.origin


def _deliveries(record: ConversationRecord) -> set[tuple[str, int]]:
    return {(row.target, row.effect_id) for row in record.outbox}


def _without_delivered(record: ConversationRecord, stored: ConversationRecord) -> ConversationRecord:
    """Return a conversation without the deliveries that an earlier copy of it has made by itself. `Pure.`"""
    waiting, newest = _deliveries(stored), len(stored.steps)
    left = tuple(row for row in record.outbox if row.seq > newest or (row.target, row.effect_id) in waiting)
    return record._replace(outbox=left)


def _difference(stored: ConversationRecord, record: ConversationRecord) -> str:
    """Return why a conversation does not take the place of the one in the target. `Pure.`"""
    if _identity(stored) != _identity(record) or stored.steps[:1] != record.steps[:1]:
        return _ANOTHER
    return _BESIDE if stored.steps == record.steps else _BOTH
