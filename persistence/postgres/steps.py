"""Stores a step by one statement: the head of its conversation, the step itself and its deliveries, and the call for
whoever goes on from there.

A statement costs the client about 60 µs and one way to the server, whatever it does, so one for all tables takes a
third of the time that one for each of them takes. The UPDATE of the head compares the position of the log, and the
fence of the custody; if it finds no row, the others insert nothing, and nobody is called for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..codec import DELIVERIES, deliveries_checksum
from ..records import EventRow, HeadRow
from ..sql import writing
from ..sql.statements import Driver
from ..sql.writing import Append

_TYPES = {"payload": "text", "effects": "text", "ended": "text", "event_id": "text", "type": "text"}
_BYTES = ("state", "chain")


def _typed(name: str) -> str:
    """Return the parameter of a column of `events`, with its type: NULL has none of its own."""
    return f"%s::{'bytea' if name in _BYTES else _TYPES.get(name, 'bigint')}"


def _statement(*, fenced: bool, sends: bool) -> str:
    heads = ", ".join(f"{name} = %s" for name in HeadRow._fields)
    sent = f", sent = (sent + %s) %% {DELIVERIES}" if sends else ""
    fence = " AND fence = %s" if fenced else ""
    send = (
        ", deliveries AS (INSERT INTO outbox (conversation, target, effect_id, seq, attempts) "
        "SELECT key, target, effect_id, %s, 0 FROM head, unnest(%s::text[], %s::bigint[]) AS sent (target, effect_id))"
    )
    return (
        f"WITH head AS (UPDATE conversations SET {heads}{sent} "
        f"WHERE key = %s AND seq = %s AND chain = %s{fence} RETURNING key)"
        f"{send if sends else ''} "
        f"INSERT INTO events (conversation, {', '.join(EventRow._fields)}) "
        f"SELECT key, {', '.join(map(_typed, EventRow._fields))} FROM head"
    )


_STATEMENTS = {
    (fenced, sends): _statement(fenced=fenced, sends=sends) for fenced in (False, True) for sends in (False, True)
}
_FOUND = (
    "SELECT fence, (SELECT chain FROM events WHERE conversation = key AND seq = %s) FROM conversations WHERE key = %s"
)

Outcome = Literal["stored", "moved on", "custody lost"]
"""What became of a step: it is stored, or its conversation has moved on or was deleted, or another custody of the
conversation has begun."""


@dataclass(frozen=True)
class CallingExpression:
    """SQL that calls for a process where it is evaluated, with the id of the conversation as its one parameter."""

    sql: str
    conversation_id: str


def store_step(driver: Driver, step: Append, fence: int | None, call: CallingExpression | None = None) -> Outcome:
    """Store a linked step, with all that changes with it, and `call`. Nothing has changed unless it is stored. A step
    that changes no details takes one statement, which is a transaction of its own if the caller has begun none.

    A step that an earlier attempt of the same log has stored, although it was reported as failed, counts as stored.
    Raises `psycopg.IntegrityError` if an event's id, or its effect's, is already in the log.
    """
    statement, values = _STATEMENTS[fence is not None, bool(step.outgoing)], _values(step, fence)
    if call is not None:  # for each row that is inserted, which the row of the conversation is locked for by then
        statement, values = f"{statement} RETURNING {call.sql}", [*values, call.conversation_id]
    if driver.execute(statement, values).rowcount != 1:
        return _why_not(driver, step, fence)
    if step.details is not None:
        writing.change(driver, step.position.key, step.details)
    return "stored"


def _values(step: Append, fence: int | None) -> list[object]:
    encoded, position, outgoing = step.encoded, step.position, step.outgoing
    row = encoded.row
    values: list[object] = [row.seq, step.chain, *encoded.head]
    if outgoing:
        values.append(deliveries_checksum((each.target, each.effect_id) for each in outgoing))
    values += (position.key, position.seq, position.chain)
    if fence is not None:
        values.append(fence)
    if outgoing:
        values += (row.seq, [each.target for each in outgoing], [each.effect_id for each in outgoing])
    values += row[:-1]
    values.append(step.chain)
    return values


def _why_not(driver: Driver, step: Append, fence: int | None) -> Outcome:
    found = driver.execute(_FOUND, (step.encoded.row.seq, step.position.key)).fetchone()
    if found is None:
        return "moved on"
    its_fence, link = found
    if step.position.in_doubt == step.chain == link:
        return "stored"
    return "moved on" if fence is None or fence == its_fence else "custody lost"
