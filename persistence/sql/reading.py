"""Reads conversations and verifies what it reads. Each function works within the transaction of its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ...states.context import Context
from ...states.errors import UnknownConversation
from ...states.events import Event, Request, ToolsChanged
from ...states.states import AnyState
from ..codec import (
    GENESIS,
    check_end,
    check_link,
    check_state,
    content_of,
    decode,
    decode_state,
    from_microseconds,
    missing,
    read_steps,
    without_given_messages,
)
from ..errors import Damaged
from ..records import HeadRow, StoredEntry, Undelivered
from . import queries, writing
from .queries import LARGEST, UndeliveredRow
from .statements import Driver
from .writing import LogPosition


class FoundHead(NamedTuple):
    """What a conversation needs for its next step, the position at which that is stored, and its row."""

    position: LogPosition
    state: AnyState
    context: Context
    head: HeadRow


def read_head(driver: Driver, conversation_id: str) -> FoundHead:
    """Read where a conversation stands, at a cost that does not grow with its log.

    The head row is compared with the newest step. The steps that are read (the first, the newest, and those that
    changed the context) are verified by their links. Raises `UnknownConversation` and `Damaged`.
    """
    key, head = queries.found(driver, conversation_id)
    first = _opening(driver, key)
    seq = queries.newest(driver, key)
    newest = first if seq == 1 else _verified(driver, key, seq)
    check_end(head, newest.seq, newest.chain)
    check_state(head, newest.digest)
    context = _context(driver, key, first.event)
    is_titled = writing.is_titled(driver, key)
    position = LogPosition(key, head.seq, head.chain, first.chain, is_titled=is_titled)
    return FoundHead(position, decode_state(head), context, head)


def _opening(driver: Driver, key: int) -> StoredEntry:
    """Read and verify the first step. Its event is without the messages of a given history, which may be long: nothing
    but the transcript needs them."""
    rows = queries.steps(driver, key, 1, 1)
    if not rows:
        raise missing(1)
    entry = replace(decode(without_given_messages(rows[0])), content=content_of(rows[0]))
    check_link(entry, 0, GENESIS)
    return entry


def _context(driver: Driver, key: int, opened: Event) -> Context:
    """Read the context of a conversation that began with `opened`: of each kind of change, what still matters."""
    changes = [_verified(driver, key, seq) for seq in queries.context_changes(driver, key)]
    changes += _tools_changes(driver, key)
    context = Context().after(opened)
    for entry in sorted(changes, key=lambda change: change.seq):
        context = context.after(entry.event)
    return context


def _tools_changes(driver: Driver, key: int) -> list[StoredEntry]:
    """Read the newest change of the tools, and the one whose tools hold until it takes effect, if there are such
    changes: the newest that is for an earlier turn."""
    found: list[StoredEntry] = []
    seq = queries.tools_change(driver, key)
    while seq is not None and len(found) < 2:
        found.append(_verified(driver, key, seq))
        event = found[-1].event
        if not isinstance(event, ToolsChanged):
            raise Damaged(seq, f"Step {seq} is not what was stored: the file is damaged.")
        seq = queries.tools_change(driver, key, before=event.from_turn)
    return found


def read_entries(driver: Driver, conversation_id: str, after: int, up_to: int | None) -> tuple[StoredEntry, ...]:
    """Read the steps that follow the step `after`. Their chain is verified, from the link of that step on, or from the
    beginning. Raises `UnknownConversation` and `Damaged`."""
    key, head = queries.found(driver, conversation_id)
    start, newest = max(after, 0), head.seq if type(head.seq) is int else LARGEST
    if start > newest:
        return ()
    chain = GENESIS if start == 0 else _link(driver, key, start)
    last = LARGEST if up_to is None else up_to
    entries = read_steps(queries.steps(driver, key, start + 1, last), start, chain)
    seq, chain = _end(entries, start, chain)
    if last >= newest:
        check_end(head, seq, chain)
    elif seq < last:
        raise missing(seq + 1)
    return entries


class MissedSteps(NamedTuple):
    """The steps that others have stored, and the row of the conversation behind them."""

    entries: tuple[StoredEntry, ...]
    head: HeadRow


def read_missed(driver: Driver, conversation_id: str, position: LogPosition) -> MissedSteps:
    """Read the steps that were stored behind `position`. It is moved on by whoever hands them over.

    Raises `UnknownConversation` if the conversation was deleted, also if another one has taken its id.
    """
    key, head = _found_again(driver, conversation_id, position)
    seq, chain = position.seq, position.chain
    entries = read_steps(queries.steps(driver, key, seq + 1), seq, chain)
    check_end(head, *_end(entries, seq, chain))
    return MissedSteps(entries, head)


def read_request(driver: Driver, conversation_id: str, position: LogPosition, event_id: str) -> StoredEntry | None:
    """Read the step that took the request with this id. Raises `Damaged`, and `UnknownConversation` as `read_missed`
    does."""
    key, _ = _found_again(driver, conversation_id, position)
    seq = queries.request(driver, key, event_id)
    if seq is None:
        return None
    entry = _verified(driver, key, seq)
    if not isinstance(entry.event, Request):
        raise Damaged(seq, f"Step {seq} is not what was stored: the file is damaged.")
    return entry


def _found_again(driver: Driver, conversation_id: str, position: LogPosition) -> tuple[int, HeadRow]:
    """Read the key and the head row of the conversation that was loaded at `position`. Raises `UnknownConversation` if
    it was deleted, also if another one has taken its id."""
    key, head = queries.found(driver, conversation_id)
    if key != position.key or _link(driver, key, 1) != position.origin:
        raise UnknownConversation(conversation_id)
    return key, head


def _verified(driver: Driver, key: int, seq: int) -> StoredEntry:
    """Read one step, and verify its link by that of the step before it."""
    before = GENESIS if seq == 1 else _link(driver, key, seq - 1)
    entries = read_steps(queries.steps(driver, key, seq, seq), seq - 1, before)
    if not entries:
        raise missing(seq)
    return entries[0]


def _link(driver: Driver, key: int, seq: int) -> bytes:
    """Read the link of a step. Raises `Damaged` if the step is missing."""
    link = queries.link(driver, key, seq)
    if link is None:
        raise missing(seq)
    return link


def _end(entries: tuple[StoredEntry, ...], seq: int, chain: bytes) -> tuple[int, bytes]:
    """Return the number and the link of the last of these steps, or those given if there are none."""
    return (entries[-1].seq, entries[-1].chain) if entries else (seq, chain)


def read_scheduled(driver: Driver, limit: int) -> tuple[tuple[str, datetime], ...]:
    """Read which conversations have a scheduled wake-up, the earliest first. Raises `Damaged`."""
    return tuple((conversation_id, _moment_of(at)) for conversation_id, at in queries.scheduled(driver, limit))


def read_outbox(driver: Driver, conversation_ids: Sequence[str]) -> tuple[Undelivered, ...]:
    """Read the deliveries of these conversations. Raises `Damaged`."""
    return tuple(map(_undelivered, queries.undelivered(driver, conversation_ids)))


def _moment_of(at: int) -> datetime:
    try:
        return from_microseconds(at)
    except (TypeError, OverflowError) as error:
        raise Damaged(0, "The scheduled wake-ups cannot be read: the file is damaged.") from error


def _undelivered(row: UndeliveredRow) -> Undelivered:
    due = row.next_attempt
    try:
        if any(type(count) is not int for count in (row.effect_id, row.seq, row.attempts, row.begun)):
            raise TypeError("a number is not an integer")
        return Undelivered(*row[:-2], None if due is None else from_microseconds(due), row.begun)
    except (TypeError, OverflowError) as error:
        raise Damaged(0, "What is to be delivered cannot be read: the file is damaged.") from error
