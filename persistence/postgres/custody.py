"""Who looks after a conversation, and what calls for somebody who does.

A process that looks after a conversation has its custody. Each custody has a number, the fence, which stands in the row
of the conversation. A process appends with the fence of its custody, so once another custody has begun, nothing of the
older one is stored any more, however long its process stood still in between.

A transaction that leaves work to do calls for a process, unless the work is of one that has the custody anyway. It also
calls for one at each moment at which a conversation that rests has something to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from ..codec import from_microseconds
from ..ports import Taken
from ..records import ConversationRecord, HeadRow
from ..sql.statements import Driver


class Calls(Protocol):
    """What calls for processes within a transaction of the store, for which `Jobs` finds them.

    A call is made if the transaction is committed, and only then. One too many does no harm.
    """

    def call(self, driver: Driver, conversation_id: str) -> None:
        """Call for a process that looks after the conversation. Without effect while such a call waits. The transaction
        has locked the row of the conversation before."""
        ...

    def call_at(self, driver: Driver, conversation_id: str, due: datetime) -> None:
        """Call for a process at this moment; at once if it is past."""
        ...


class Work(NamedTuple):
    """What a conversation has to do: whether it waits for an answer, when its timer is due, and its next wake-up. The
    moments are in microseconds since 1970."""

    waits: bool
    next_timer: int | None
    wakes_at: int | None

    @classmethod
    def of(cls, head: HeadRow) -> Work:
        """The work of a conversation with this row. `Pure.`"""
        return cls(bool(head.waits), head.next_timer, head.wakes_at)


NO_WORK = Work(False, None, None)


def call_for_work(calls: Calls, driver: Driver, conversation_id: str, before: Work, after: Work, *, now: bool) -> None:
    """Call for processes because of what a step has changed. `now` says that it sends something, and that nobody has
    the custody who would see to that.

    A conversation that waits is looked after already, or was called for, and so are its timers.
    """
    if now:
        calls.call(driver, conversation_id)
    timer = None if after.waits else after.next_timer
    if timer is not None and timer != (None if before.waits else before.next_timer):
        calls.call_at(driver, conversation_id, from_microseconds(timer))
    if after.wakes_at is not None and after.wakes_at != before.wakes_at:
        calls.call_at(driver, conversation_id, from_microseconds(after.wakes_at))


def call_for_records(calls: Calls, driver: Driver, records: Iterable[ConversationRecord]) -> None:
    """Call for processes because these conversations were stored as they are."""
    for record in records:
        work = Work.of(record.head)
        call_for_work(calls, driver, record.id, NO_WORK, work, now=work.waits or bool(record.outbox))


_TAKE = """
UPDATE conversations SET
    was_left = CASE WHEN holder = %s THEN was_left WHEN holder IS NULL THEN 0 ELSE 1 END,
    fence = fence + CASE WHEN holder = %s THEN 0 ELSE 1 END,
    holder = %s
WHERE id = %s
RETURNING fence, seq, was_left, EXISTS (SELECT 1 FROM outbox WHERE conversation = key)
"""
_LET_GO = (
    "UPDATE conversations SET holder = NULL, was_left = 0 WHERE id = %s AND fence = %s AND holder = %s RETURNING key"
)
_HOLDS = "SELECT 1 FROM conversations WHERE id = %s AND fence = %s AND holder = %s"
_LOCK_HELD = f"{_HOLDS} FOR NO KEY UPDATE"
_NEXT_ATTEMPT = "SELECT min(next_attempt) FROM outbox WHERE conversation = %s"


def take(driver: Driver, conversation_id: str, holder: str) -> Taken | None:
    """Begin a custody, or return the one with this name again."""
    row = driver.execute(_TAKE, (holder, holder, holder, conversation_id)).fetchone()
    if row is None:
        return None
    fence, seq, was_left, has_deliveries = row
    return Taken(conversation_id, fence, holder, seq, bool(was_left), has_deliveries)


def let_go(driver: Driver, calls: Calls, taken: Taken, *, at_rest: bool) -> None:
    """End a custody, and call for whoever goes on. A custody that ends in the middle of something keeps its name in the
    row, so that the next one finds it left."""
    name = (taken.conversation_id, taken.fence, taken.holder)
    if not at_rest:
        if driver.execute(_LOCK_HELD, name).fetchone() is not None:
            calls.call(driver, taken.conversation_id)
        return
    row = driver.execute(_LET_GO, name).fetchone()
    if row is None:
        return
    (due,) = driver.execute(_NEXT_ATTEMPT, row).fetchone()
    if due is not None:
        calls.call_at(driver, taken.conversation_id, from_microseconds(due))


def is_held(driver: Driver, taken: Taken) -> bool:
    """Whether this is still the custody of the conversation."""
    return driver.execute(_HOLDS, (taken.conversation_id, taken.fence, taken.holder)).fetchone() is not None


_MOVED = """
SELECT known.id, coalesce(conversations.seq, 0)
FROM unnest(%s::text[], %s::bigint[]) AS known (id, seq) LEFT JOIN conversations ON conversations.id = known.id
WHERE conversations.seq IS DISTINCT FROM known.seq
"""


def moved(driver: Driver, known: Mapping[str, int]) -> dict[str, int]:
    """Return the newest step of those of these conversations that are not at the step which is known; 0 for one that is
    not stored any more."""
    return dict(driver.execute(_MOVED, (list(known), list(known.values()))).fetchall())
