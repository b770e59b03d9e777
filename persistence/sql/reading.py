"""Reads conversations and verifies what it reads. Each function works within the transaction of its caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from ..records import EventRow, HeadRow, StoredEntry, Undelivered
from . import queries
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
    end = queries.find_end(driver, conversation_id)
    steps = _SomeSteps.read(driver, end.key, {1, end.newest, *end.changes})
    first = steps.opening()
    newest = first if end.newest == 1 else steps.verified(end.newest)
    check_end(end.head, newest.seq, newest.chain)
    check_state(end.head, newest.digest)
    context = _context(driver, steps, first.event, end.changes)
    position = LogPosition(end.key, end.head.seq, end.head.chain, first.chain, is_titled=end.is_titled)
    return FoundHead(position, decode_state(end.head), context, end.head)


class _SomeSteps(NamedTuple):
    """Steps of a conversation, and the links of the steps before them, all read at once."""

    key: int
    rows: Mapping[int, EventRow]
    links: Mapping[int, bytes]

    @classmethod
    def read(cls, driver: Driver, key: int, wanted: Collection[int]) -> _SomeSteps:
        """Read these steps, as far as they are there."""
        before = {seq - 1 for seq in wanted} - {0}
        return cls(
            key, queries.some_steps(driver, key, wanted), queries.some_links(driver, key, before) if before else {}
        )

    def opening(self) -> StoredEntry:
        """The first step, verified. Its event is without the messages of a given history, which may be long: nothing
        but the transcript needs them."""
        row = self.rows.get(1)
        if row is None:
            raise missing(1)
        entry = replace(decode(without_given_messages(row)), content=content_of(row))
        check_link(entry, 0, GENESIS)
        return entry

    def verified(self, seq: int) -> StoredEntry:
        """One step, verified by its link and that of the step before it."""
        before = GENESIS if seq == 1 else self.links.get(seq - 1)
        if before is None:
            raise missing(seq - 1)
        row = self.rows.get(seq)
        if row is None:
            raise missing(seq)
        return read_steps((row,), seq - 1, before)[0]


def _context(driver: Driver, steps: _SomeSteps, opened: Event, changes: Collection[int]) -> Context:
    """Return the context of a conversation that began with `opened`: of each kind of change, what still matters."""
    entries = {seq: steps.verified(seq) for seq in changes}
    for entry in tuple(entries.values()):
        if isinstance(entry.event, ToolsChanged):  # until it takes effect, those of a change for an earlier turn hold
            seq = queries.tools_change(driver, steps.key, entry.event.from_turn)
            if seq is not None:
                entries[seq] = _verified(driver, steps.key, seq)
    context = Context().after(opened)
    for seq in sorted(entries):
        context = context.after(entries[seq].event)
    return context


def read_entries(driver: Driver, conversation_id: str, after: int, up_to: int | None) -> tuple[StoredEntry, ...]:
    """Read the steps that follow the step `after`. Their chain is verified, from the link of that step on, or from the
    beginning. Raises `UnknownConversation` and `Damaged`."""
    start = min(max(after, 0), LARGEST - 1)
    last = LARGEST if up_to is None else max(min(up_to, LARGEST), 0)
    _, head, link, rows = queries.log_part(driver, conversation_id, start + 1, last, link_of=start)
    newest = head.seq if type(head.seq) is int else LARGEST
    if start > newest:
        return ()
    chain = GENESIS if start == 0 else _present(link, start)
    entries = read_steps(rows, start, chain)
    seq, chain = _end(entries, start, chain)
    if last >= newest:
        check_end(head, seq, chain)
    elif seq < last:
        raise missing(seq + 1)
    return entries


class MissedSteps(NamedTuple):
    """The steps that others have stored, and the row of the conversation behind them, without its state."""

    entries: tuple[StoredEntry, ...]
    head: HeadRow


def read_missed(driver: Driver, conversation_id: str, position: LogPosition) -> MissedSteps:
    """Read the steps that were stored behind `position`. It is moved on by whoever hands them over.

    Raises `UnknownConversation` if the conversation was deleted, also if another one has taken its id.
    """
    seq, chain = position.seq, position.chain
    part = queries.log_part(driver, conversation_id, seq + 1, LARGEST, link_of=1)
    _check_same(part, conversation_id, position)
    entries = read_steps(part.rows, seq, chain)
    check_end(part.head, *_end(entries, seq, chain))
    return MissedSteps(entries, part.head)


def read_request(driver: Driver, conversation_id: str, position: LogPosition, event_id: str) -> StoredEntry | None:
    """Read the step that took the request with this id. Raises `Damaged`, and `UnknownConversation` as `read_missed`
    does."""
    _check_same(queries.log_part(driver, conversation_id, 1, 0, link_of=1), conversation_id, position)
    seq = queries.request(driver, position.key, event_id)
    if seq is None:
        return None
    entry = _verified(driver, position.key, seq)
    if not isinstance(entry.event, Request):
        raise Damaged(seq, f"Step {seq} is not what was stored: the log is damaged.")
    return entry


def _check_same(part: queries.LogPart, conversation_id: str, position: LogPosition) -> None:
    """Raise `UnknownConversation` if the conversation that was loaded at `position` was deleted, also if another one
    has taken its id."""
    if part.key != position.key or _present(part.link, 1) != position.origin:
        raise UnknownConversation(conversation_id)


def _verified(driver: Driver, key: int, seq: int) -> StoredEntry:
    """Read one step, and verify its link by that of the step before it."""
    before = GENESIS if seq == 1 else _present(queries.link(driver, key, seq - 1), seq - 1)
    entries = read_steps(queries.steps(driver, key, seq, seq), seq - 1, before)
    if not entries:
        raise missing(seq)
    return entries[0]


def _present(link: bytes | None, seq: int) -> bytes:
    """Return the link of a step that must be there. Raises `Damaged`."""
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
        raise Damaged(0, "The scheduled wake-ups cannot be read: the database is damaged.") from error


def _undelivered(row: UndeliveredRow) -> Undelivered:
    due = row.next_attempt
    try:
        if any(type(count) is not int for count in (row.effect_id, row.seq, row.attempts, row.begun)):
            raise TypeError("a number is not an integer")
        return Undelivered(*row[:-2], None if due is None else from_microseconds(due), row.begun)
    except (TypeError, OverflowError) as error:
        raise Damaged(0, "What is to be delivered cannot be read: the database is damaged.") from error
