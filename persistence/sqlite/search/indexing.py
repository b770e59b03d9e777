"""Takes the texts of a conversation out of its log and into the index, some steps at a time.

How far the index has followed a log stands beside it, in `text_positions`, and is written in the same transaction. A
conversation whose row is deleted takes its position with it, so another one under the same key begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from ....states.context import Context
from ....states.dialogue import may_say, said_texts
from ....states.events import Event
from ....states.step import LogEntry
from ...errors import Damaged
from ...records.codec import decode
from ...records.given_messages import without_given_messages
from ...records.rows import EventRow
from ..file.transaction import driver_of
from ..tables import queries
from . import text_index
from .scopes import number_of
from .text_index import TextRow, source_of

_STANDS = """
SELECT conversations.seq, owner, coalesce(text_positions.seq, 0)
FROM conversations LEFT JOIN text_positions ON conversation = key WHERE key = ?
"""
_MOVE = "INSERT INTO text_positions (conversation, seq) VALUES (?, ?) ON CONFLICT DO UPDATE SET seq = excluded.seq"
_POLICY = """
SELECT max(seq) FROM events WHERE conversation = ? AND type = 'policy_changed' AND seq <= ?
"""


@dataclass
class Budget:
    """What one transaction may still read: steps, and characters of their JSON."""

    steps: int
    characters: int

    @property
    def is_spent(self) -> bool:
        """Whether the transaction should end."""
        return self.steps <= 0 or self.characters <= 0


def index_conversation(connection: Connection, key: int, budget: Budget) -> bool:
    """Index the next steps of a conversation. Returns whether the index has now reached the end of the log.

    A step that cannot be read has no texts; the doctor reports it.
    """
    driver = driver_of(connection)
    found = driver.execute(_STANDS, (key,)).fetchone()
    if found is None or found[2] >= found[0]:
        return True
    head, owner, position = found
    log = _LogPart(connection, key, position)
    rows = log.read(budget)
    last = rows[-1].seq if rows and budget.is_spent else head
    is_end = bool(last >= head)
    known = text_index.known_rows(driver, key, position + 1, queries.LARGEST if is_end else last)
    text_index.add(driver, log.texts(rows, number_of(owner, key)), known)
    driver.executemany("DELETE FROM texts WHERE id = ?", [(row.number,) for row in known.values()])
    driver.execute(_MOVE, (key, last))
    return is_end


def texts_of_log(connection: Connection, key: int, owner: str | None, position: int) -> Iterator[TextRow]:
    """The texts of a conversation up to the step `position`, as its log says today."""
    log = _LogPart(connection, key, 0)
    return log.texts(queries.steps(connection, key, 1, position), number_of(owner, key))


class _LogPart:
    """The steps of a log behind `position`, and what is read of those before them."""

    def __init__(self, connection: Connection, key: int, position: int) -> None:
        self._connection = connection
        self._key = key
        self._position = position
        self._events: dict[int, Event | None] = {}

    def read(self, budget: Budget) -> list[EventRow]:
        """Read the next rows, at least one if there is one, until the budget is spent."""
        rows: list[EventRow] = []
        for row in queries.each_step(self._connection, self._key, self._position + 1):
            rows.append(row)
            budget.steps -= 1
            budget.characters -= len(row.payload)
            if budget.is_spent:
                break
        return rows

    def texts(self, rows: Iterable[EventRow], scope: int) -> Iterator[TextRow]:
        """The texts that these steps add."""
        context = self._context()
        for row in rows:
            if not may_say(row.type, row.effects) or (entry := _entry(row)) is None:
                continue
            self._events[entry.seq] = entry.event
            context = context.after(entry.event)
            for part, said in enumerate(said_texts(entry, context, self.event)):
                event = None if said.source is None else self.event(said.source.seq)
                yield TextRow(self._key, scope, entry.seq, part, said, source_of(said, event))

    def event(self, seq: int) -> Event | None:
        """The event of a step, or None if it cannot be read."""
        if seq not in self._events:
            rows = queries.steps(self._connection, self._key, seq, seq)
            entry = _entry(rows[0]) if rows else None
            self._events[seq] = None if entry is None else entry.event
        return self._events[seq]

    def _context(self) -> Context:
        """The role and the policy at `position`; nothing else of a context counts here."""
        context = Context()
        if self._position == 0:
            return context
        changed = driver_of(self._connection).execute(_POLICY, (self._key, self._position)).fetchone()[0]
        for seq in (1, changed):
            for row in queries.steps(self._connection, self._key, seq, seq) if seq is not None else ():
                entry = _entry(without_given_messages(row))
                context = context if entry is None else context.after(entry.event)
        return context


def _entry(row: EventRow) -> LogEntry | None:
    try:
        return decode(row)
    except Damaged:
        return None
