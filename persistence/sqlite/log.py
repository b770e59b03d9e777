"""The log of one conversation in a SQLite database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from ...states.events import Event
from ...states.step import Step
from ..records.codec import EncodedStep, to_microseconds
from ..records.entry import StoredEntry
from ..records.outbox import Outgoing
from .database import Database
from .file.transaction import driver_of
from .reading import read_missed, read_request
from .tables.recorder import OutboxKey, Postponement, begin_attempt
from .threads.log_position import Append, LogPosition
from .threads.receipts import Receipt


class SqliteLog:
    """Implements the port `Log`. Made by `SqliteStore.create` and `SqliteStore.load`."""

    NEEDS_NO_TASK = True

    __slots__ = ("_conversation_id", "_database", "_position")

    def __init__(self, database: Database, conversation_id: str, position: LogPosition) -> None:
        self._database = database
        self._conversation_id = conversation_id
        self._position = position

    @property
    def seq(self) -> int:
        """The number of the newest step that this log knows to be stored."""
        return self._position.head.seq

    @property
    def chain(self) -> bytes:
        """The link of that step."""
        return self._position.head.chain

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step and its deliveries in one transaction; `Log.append` says the rest.

        A disk that reports a failed commit may have stored the step. The same step may be appended again; if it is
        found in the log then, it is not stored a second time.
        """
        outgoing = tuple(dict.fromkeys(Outgoing(*target) for target in targets)) if targets else ()
        stored = self._database.append(Append(self._position, EncodedStep.of(event, step), outgoing))
        if stored is not None:
            await stored

    async def request(self, event_id: str) -> StoredEntry | None:
        """Return the step that took the request with this id, or None.

        Raises `UnknownConversation` and `Damaged`.
        """
        where = self._conversation_id, self._position
        return await self._database.read(lambda connection: read_request(connection, *where, event_id))

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """Return the steps that others have stored behind `seq`, and move on to the newest of them.

        Raises `UnknownConversation` and `Damaged`.
        """
        work = partial(read_missed, conversation_id=self._conversation_id, position=self._position)
        database = self._database
        return await (database.read(work) if database.is_read_only else database.write(work))

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Remove a delivery that has arrived from the outbox.

        Returns at once. The receipt is stored with the next step of any conversation, or a moment later, and is kept
        until the disk takes it. After a crash before that, the delivery is made once more.
        """
        self._database.note(Receipt(self._key(effect_id, target)))

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that a delivery has failed `attempts` times and is tried again at `next_attempt`.

        Stored like `acknowledge`, and without effect once the delivery is acknowledged.
        """
        postponement = Postponement(attempts, to_microseconds(next_attempt))
        self._database.note(Receipt(self._key(effect_id, target), postponement))

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Store that an attempt begins at a delivery which an earlier process has left, the `begun`-th in a row.

        Returns when it is stored, behind the receipts so far. Raises `StorageFailed`.
        """
        key = self._key(effect_id, target)
        await self._database.flush()
        await self._database.write(lambda connection: begin_attempt(driver_of(connection), key, begun))

    def _key(self, effect_id: int, target: str) -> OutboxKey:
        return OutboxKey(self._position.head.key, target, effect_id, self._position.origin)
