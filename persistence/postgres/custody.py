"""Who looks after a conversation, and what calls for somebody who does.

A process that looks after a conversation has its custody. Each custody has a number, the fence, which stands in the row
of the conversation. A process appends with the fence of its custody, so once another custody has begun, nothing of the
older one is stored any more, however long its process stood still in between.

A transaction that leaves work to do calls for a process, unless the work is of one that has the custody anyway. It also
calls for one at each moment at which a conversation that rests has something to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from ..codec import from_microseconds, to_microseconds
from ..ports import Taken, Untried
from ..records import ConversationRecord, HeadRow
from ..sql.statements import Driver

SOON = timedelta(seconds=3)
"""What is due within this is called for at once: whoever looks for what is due may have looked already."""


class Calls(Protocol):
    """What calls for processes within a transaction of the store, for which `Jobs` finds them.

    A call is made if the transaction is committed, and only then. One too many does no harm.
    """

    @property
    def expression(self) -> str | None:
        """The SQL that calls like `call` where it is evaluated, with the id of the conversation as its one parameter;
        None if there is none. It spares a step three ways to the server."""
        ...

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


class WorkCalls(NamedTuple):
    """The calls that a step makes: one now, or not, and one at each of these moments, in microseconds since 1970."""

    now: bool
    later: tuple[int, ...]

    @classmethod
    def of(cls, before: Work, after: Work, *, now: bool) -> WorkCalls:
        """Return the calls for what a step has changed. `Pure.`

        A conversation that waits is looked after already, or was called for, and so are its timers.
        """
        timer = None if after.waits else after.next_timer
        later = []
        if timer is not None and timer != (None if before.waits else before.next_timer):
            later.append(timer)
        if after.wakes_at is not None and after.wakes_at != before.wakes_at:
            later.append(after.wakes_at)
        return cls(now, tuple(later))

    def __bool__(self) -> bool:
        return self.now or bool(self.later)

    def expression(self, calls: Calls) -> str | None:
        """Return what makes the calls where a statement evaluates it, if that is enough."""
        return calls.expression if self.now and not self.later else None

    def make(self, calls: Calls, driver: Driver, conversation_id: str) -> None:
        """Make the calls, within the transaction of the step."""
        if self.now:
            calls.call(driver, conversation_id)
        for due in self.later:
            calls.call_at(driver, conversation_id, from_microseconds(due))


def call_for_records(calls: Calls, driver: Driver, records: Iterable[ConversationRecord]) -> None:
    """Call for processes because these conversations were stored as they are."""
    for record in records:
        calls_of_record(record).make(calls, driver, record.id)


def calls_of_record(record: ConversationRecord) -> WorkCalls:
    """Return the calls for a conversation that was stored as it is. `Pure.`"""
    work = Work.of(record.head)
    return WorkCalls.of(NO_WORK, work, now=work.waits or bool(record.outbox))


_TAKE = """
UPDATE conversations SET
    was_left = CASE WHEN holder = %s THEN was_left WHEN holder IS NULL THEN 0 ELSE 1 END,
    fence = fence + CASE WHEN holder = %s THEN 0 ELSE 1 END,
    holder = %s
WHERE id = %s
RETURNING fence, seq, was_left, EXISTS (SELECT 1 FROM outbox WHERE conversation = key)
"""
_LET_GO = """
UPDATE conversations SET holder = NULL, was_left = 0 WHERE id = %s AND fence = %s AND holder = %s
RETURNING (SELECT min(next_attempt) FROM outbox WHERE conversation = key AND next_attempt > %s)
"""
_HOLDS = "SELECT 1 FROM conversations WHERE id = %s AND fence = %s AND holder = %s"
_LOCK_HELD = f"{_HOLDS} FOR NO KEY UPDATE"


def take(driver: Driver, conversation_id: str, holder: str) -> Taken | None:
    """Begin a custody, or return the one with this name again."""
    row = driver.execute(_TAKE, (holder, holder, holder, conversation_id)).fetchone()
    if row is None:
        return None
    fence, seq, was_left, has_deliveries = row
    return Taken(conversation_id, fence, holder, seq, bool(was_left), has_deliveries)


def let_go(driver: Driver, taken: Taken) -> datetime | None:
    """End a custody at rest. Returns when the next delivery is due, if one is left that was tried. One that is due by
    now, or would be called for at once, cannot be sent by this process, which has waited: to call for it would have no
    end."""
    soon = to_microseconds(datetime.now(UTC) + SOON)
    row = driver.execute(_LET_GO, (taken.conversation_id, taken.fence, taken.holder, soon)).fetchone()
    return None if row is None or row[0] is None else from_microseconds(row[0])


def pass_on(driver: Driver, calls: Calls, taken: Taken) -> None:
    """Call for whoever goes on where a custody ends in the middle of something. Its name stays in the row, so that the
    next one finds it left."""
    if driver.execute(_LOCK_HELD, (taken.conversation_id, taken.fence, taken.holder)).fetchone() is not None:
        calls.call(driver, taken.conversation_id)


def is_held(driver: Driver, taken: Taken) -> bool:
    """Whether this is still the custody of the conversation."""
    return driver.execute(_HOLDS, (taken.conversation_id, taken.fence, taken.holder)).fetchone() is not None


_UNTRIED = """
SELECT conversations.id, effect_id, target FROM outbox AS one JOIN conversations ON key = conversation
WHERE attempts = 0 AND NOT EXISTS (
    SELECT FROM outbox AS earlier WHERE earlier.conversation = one.conversation AND earlier.target = one.target
        AND earlier.effect_id < one.effect_id AND earlier.attempts > 0
) AND (holder IS NOT NULL OR EXISTS (
    SELECT FROM "{schema}".procrastinate_jobs WHERE lock = conversations.id AND status IN ('todo', 'doing')
))
"""


def untried(driver: Driver, schema: str) -> set[Untried]:
    """Return what is to be sent for the first time, by processes that look after conversations or are called for. The
    jobs that call for them are in this schema."""
    return {Untried(*row) for row in driver.execute(_UNTRIED.format(schema=schema)).fetchall()}


_FENCES = "SELECT key, fence FROM conversations WHERE key = ANY(%s) ORDER BY key FOR NO KEY UPDATE"


def fences(driver: Driver, keys: Iterable[int]) -> dict[int, int]:
    """Return the fence of the newest custody of each of these conversations, by its key. No other one begins before the
    transaction ends."""
    return dict(driver.execute(_FENCES, (list(keys),)).fetchall())


_MOVED = """
SELECT known.id, coalesce(conversations.seq, 0)
FROM unnest(%s::text[], %s::bigint[]) AS known (id, seq) LEFT JOIN conversations ON conversations.id = known.id
WHERE conversations.seq IS DISTINCT FROM known.seq
"""


def moved(driver: Driver, known: Mapping[str, int]) -> dict[str, int]:
    """Return the newest step of those of these conversations that are not at the step which is known; 0 for one that is
    not stored any more."""
    return dict(driver.execute(_MOVED, (list(known), list(known.values()))).fetchall())
