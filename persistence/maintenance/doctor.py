"""Examines a database, and mends what can be mended without guessing.

SQLite is asked whether its pages are sound. Each conversation is asked whether its log is whole and is what was stored,
whether the machine of today would take the same steps, whether it keeps the laws of every log, and whether what stands
beside the log agrees with it. What follows from the log alone can be written anew: the state and the columns that are
read off it, and rows that wait for a delivery which there is not. Everything else is only told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Executable, bindparam, delete, select, update

from ...states.effects import OutgoingEffect
from ...states.errors import UnknownConversation
from ...states.states import State
from ..errors import Damaged, StorageFailed
from ..records.codec import decode, decode_state, from_microseconds, rest_row
from ..records.digests import GENESIS, digest
from ..records.entry import StoredEntry
from ..records.integrity import check_end, check_link, missing
from ..records.rows import EventRow, RestRow, StoredRows
from ..sqlite import recorder
from ..sqlite.conversation_record import ids
from ..sqlite.schema import conversations, events, forks, outbox
from ..sqlite.store import Store
from .audit import audit
from .replay import Fold

Mend = Callable[[Connection], None]
"""Writes anew what follows from the rest. Works within the transaction of its caller."""

_FINDINGS_OF_SQLITE = 20
"""How many faults SQLite is to tell of its pages. Ours."""

DERIVED = ("state_type", "waits", "next_timer", "updated_at")
"""The columns that are read off the state and the newest step."""

_DELIVERIES = select(*(outbox.c[name] for name in ("target", "effect_id", "seq", "attempts", "next_attempt"))).where(
    outbox.c.conversation == bindparam("head_key")
)
_IS_DELIVERY = (
    outbox.c.conversation == bindparam("head_key"),
    outbox.c.target == bindparam("to"),
    outbox.c.effect_id == bindparam("effect"),
)
_DROP_DELIVERY = delete(outbox).where(*_IS_DELIVERY)
_DELIVER_AT_ONCE = update(outbox).where(*_IS_DELIVERY).values(attempts=0, next_attempt=None)
_REST_ANEW = update(conversations).where(conversations.c.key == bindparam("head_key"))


@dataclass(frozen=True)
class Finding:
    """What is wrong, in a sentence: with a conversation and one of its steps, or with the database as a whole. `mend`
    is there if it can be mended without guessing."""

    sentence: str
    conversation_id: str | None = None
    seq: int | None = None
    mend: Mend | None = None


@dataclass(frozen=True)
class Examination:
    """What was looked at, and what is wrong with it."""

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
    """Look at everything in the database, which may be open for reading only and in use by an engine."""
    result = Examination()
    try:
        result += Examination(findings=tuple(await store.database.read(_whole_file)))
        for conversation_id in await store.database.read(ids):
            result += await _examine(store, conversation_id)
    except StorageFailed as failure:
        result += Examination(findings=(Finding(failure.sentence),))
    return result


async def mend(store: Store, found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Mend what `examine` found, as far as that can be done without guessing, and return what was mended.

    All of it is done in one transaction. The store must be the only one that writes to the database since then, so it
    must have been open for writing when it was examined. Raises `StorageFailed`; then nothing was mended.
    """
    mended = tuple(finding for finding in found if finding.mend is not None)

    def write(connection: Connection) -> None:
        for finding in mended:
            if finding.mend is not None:
                finding.mend(connection)

    await store.database.write(write)
    return mended


# --- the database as a whole


def _whole_file(connection: Connection) -> Iterator[Finding]:
    """What SQLite itself finds, and rows that belong to no conversation."""
    check = connection.exec_driver_sql(f"PRAGMA integrity_check({_FINDINGS_OF_SQLITE})").scalars()
    found = [Finding(f"SQLite finds the file damaged: {line}") for line in check if line != "ok"]
    for table, what in ((events, "steps"), (outbox, "deliveries that wait"), (forks, "origins")):
        orphans = table.c.conversation.not_in(select(conversations.c.key))
        count = len(connection.execute(select(table.c.conversation).where(orphans)).all())
        if count:
            anew = partial(_execute, delete(table).where(orphans), {}) if table is outbox else None
            found.append(Finding(f"There are {what} of no conversation: {count}.", mend=anew))
    return iter(found)


# --- one conversation


async def _examine(store: Store, conversation_id: str) -> Examination:
    try:
        return await store.database.read(lambda connection: examine_one(connection, conversation_id))
    except UnknownConversation:  # deleted meanwhile
        return Examination()


def examine_one(connection: Connection, conversation_id: str) -> Examination:
    """Look at one conversation, and all that stands beside its log. Raises `UnknownConversation`."""
    stored = recorder.stored(connection, conversation_id)
    patient = _Patient(conversation_id, stored)
    deliveries = connection.execute(_DELIVERIES, {"head_key": stored.key}).all()
    findings = (*patient.log(), *patient.rest(), *patient.deliveries(_Delivery(*row) for row in deliveries))
    return Examination(1, len(stored.steps), findings)


class _Delivery(NamedTuple):
    """A delivery that waits, by its key: where it goes, the effect, and the step that wanted it; and how often it was
    tried, and when it is next."""

    target: str
    effect_id: int
    seq: int
    attempts: int
    next_attempt: int | None

    @property
    def is_readable(self) -> bool:
        """Whether it can be known when it is due."""
        try:
            due = None if self.next_attempt is None else from_microseconds(self.next_attempt)
        except (TypeError, OverflowError):
            return False
        return type(self.attempts) is int and (due is None or type(self.next_attempt) is int)


class _Patient:
    """A conversation that is examined: where it rests, and its steps."""

    def __init__(self, conversation_id: str, stored: StoredRows) -> None:
        self._conversation_id = conversation_id
        self._key, self._rest, self._rows = stored
        self._entries, self._damage = _sound_part(stored.steps)
        self._fold = Fold()
        takes = (self._fold.take(entry) for entry in self._entries)
        self._divergence = next((divergence for divergence in takes if divergence is not None), None)
        self._state = self._known_state()

    def _known_state(self) -> State | None:
        """The state behind the newest step, if it can be known: the one that the log leads to, or, where the rules have
        changed since, the stored one."""
        if self._damage is not None:
            return None
        if self._divergence is None:
            return self._fold.state
        try:
            return decode_state(self._rest) if self._rests_as_stored else None
        except Damaged:
            return None

    @property
    def _rests_as_stored(self) -> bool:
        text = self._rest.state
        return type(text) is str and digest(text) == self._entries[-1].digest

    def log(self) -> Iterator[Finding]:
        """What is wrong with the log: damage, other steps than the machine of today takes, a broken law."""
        if self._damage is not None:
            yield self._finding(self._damage.seq, self._damage.sentence)
        if self._divergence is not None:
            yield self._finding(self._divergence.seq, self._divergence.reason)
        if self._state is not None:
            yield from (self._finding(seq, sentence) for seq, sentence in audit(self._entries, self._state))

    def rest(self) -> Iterator[Finding]:
        """What is wrong with the place where it rests, beside its log."""
        if self._damage is not None:
            return
        newest = self._rows[-1]
        try:
            check_end(self._rest, newest.seq, newest.chain)
        except Damaged as damage:
            yield self._finding(damage.seq, damage.sentence)
            return
        if self._state is None:
            yield self._finding(newest.seq, f"The state behind step {newest.seq} is not what was stored once.")
        else:
            written = self._rest.state if self._rests_as_stored else self._state.to_json()
            due = rest_row(self._state, written, newest)
            yield from self._compare(due)

    def _compare(self, due: RestRow) -> Iterator[Finding]:
        """How the place of rest differs from what it must be."""
        anew = partial(_rest_anew, self._key, due)
        if not self._rests_as_stored:
            sentence = f"The state that is stored is not the one that step {due.seq} leads to."
            yield self._finding(due.seq, sentence, anew)
        for column in DERIVED:
            if getattr(self._rest, column) != getattr(due, column):
                sentence = f"The column {column} does not agree with the state and the newest step."
                yield self._finding(due.seq, sentence, anew)

    def deliveries(self, waiting: Iterable[_Delivery]) -> Iterator[Finding]:
        """What waits to be delivered and cannot be, because no step wanted it or nobody can read when it is due."""
        outgoing = {
            (entry.seq, effect.effect_id)
            for entry in self._entries
            for effect in entry.effects
            if isinstance(effect, OutgoingEffect)
        }
        for delivery in waiting if self._damage is None else ():
            it = {"head_key": self._key, "to": delivery.target, "effect": delivery.effect_id}
            if (delivery.seq, delivery.effect_id) not in outgoing:
                sentence = f"A delivery waits for the effect {delivery.effect_id}, which is none of that step's."
                yield self._finding(delivery.seq, sentence, partial(_execute, _DROP_DELIVERY, it))
            elif not delivery.is_readable:
                sentence = f"The attempts to deliver the effect {delivery.effect_id} cannot be read."
                yield self._finding(delivery.seq, sentence, partial(_execute, _DELIVER_AT_ONCE, it))

    def _finding(self, seq: int, sentence: str, mend: Mend | None = None) -> Finding:
        return Finding(sentence, self._conversation_id, seq, mend)


def _sound_part(rows: Iterable[EventRow]) -> tuple[list[StoredEntry], Damaged | None]:
    """The steps up to the first that is missing or was changed, and what is the matter with that one."""
    entries: list[StoredEntry] = []
    try:
        for row in rows:
            entry = decode(row)
            check_link(entry, len(entries), entries[-1].chain if entries else GENESIS)
            entries.append(entry)
    except Damaged as damage:
        return entries, damage
    return entries, None if entries else missing(1)


def _rest_anew(key: int, due: RestRow, connection: Connection) -> None:
    _execute(_REST_ANEW.values(**due._asdict()), {"head_key": key}, connection)


def _execute(statement: Executable, given: dict[str, Any], connection: Connection) -> None:
    connection.execute(statement, given)
