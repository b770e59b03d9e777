"""A conversation as it is stored, with all its rows: its steps, where it stands, its deliveries, and what lists show of
it.

Copies, exports, imports and the examination of a database work with this record, so that they work with every store.

Moments are whole microseconds since 1970, in UTC. The values are as they are stored: after damage a value may be of
another type than the one that is declared here. What is wrong with a storage is told with the repair that follows from
the log alone, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from ..states.step import LogEntry


@dataclass(frozen=True)
class Origin:
    """The conversation that was copied, up to and including its step `seq`. It may have been deleted since."""

    conversation_id: str
    seq: int


class EventRow(NamedTuple):
    """One step: the event, what it led to, the digest of the state after it, and its link in the chain."""

    seq: int
    event_id: str | None
    effect_id: int | None
    type: str
    version: int
    at: int
    turn: int
    payload: str
    effects: str | None
    ended: str | None
    state: bytes
    chain: bytes


class HeadRow(NamedTuple):
    """Where a conversation stands: the number and the link of its newest step, and the state after it in full.

    All values but the first two and `state` follow from the state and the newest step. They are stored so that
    conversations can be found by them. `next_timer` is when a timer of the turn is due, and `wakes_at` the next
    scheduled wake-up.
    """

    seq: int
    chain: bytes
    state_type: str
    waits: bool
    next_timer: int | None
    updated_at: int
    state: str
    wakes_at: int | None = None


class OutboxRow(NamedTuple):
    """One delivery that is not acknowledged: where it goes, which effect of which step it is, how many attempts have
    failed, when the next one is due (None: at once), and in how many of the attempts that were begun after a crash the
    process has died.

    A step that says something to people stores, in the same transaction, one row for each channel that it goes to; a
    step that writes to another agent stores one row for that agent. The row is removed when the delivery is
    acknowledged. What a crash left in the outbox is delivered again.
    """

    target: str
    effect_id: int
    seq: int
    attempts: int = 0
    next_attempt: int | None = None
    begun: int = 0


class DetailsRow(NamedTuple):
    """What a store keeps to list a conversation: the columns of its header (`summaries.HEADER_COLUMNS`), the title that
    the first message of a user gives, and a digest for each value of the metadata, sorted."""

    header: tuple[str | None, ...]
    first_message: str | None
    entries: tuple[bytes, ...]


class ConversationRecord(NamedTuple):
    """All rows of one conversation. `created_at` is in microseconds since 1970. The rows of the outbox are sorted by
    target, those of one target by step and effect.

    `details` is what the store keeps to list the conversation, None if it keeps nothing. It follows from the steps, so
    a store that is given a record computes it again. So it is with `outbox_checksum`, the sum by which it is found that
    a delivery was lost, and with `origin_checksum`; both are None where the store keeps none.
    """

    id: str
    created_at: int
    head: HeadRow
    steps: tuple[EventRow, ...]
    owner: str | None = None
    parent: str | None = None
    origin: Origin | None = None
    outbox: tuple[OutboxRow, ...] = ()
    details: DetailsRow | None = None
    outbox_checksum: int | None = None
    origin_checksum: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry(LogEntry):
    """A step of the log with the three digests, 16 bytes each, by which a replay judges it.

    `digest` is the digest of the state after the step. `chain` is the link that is stored with the row. `content` is
    the digest of the row as it was read: for an undamaged row, `content` and the link before it give `chain`.
    """

    digest: bytes
    chain: bytes
    content: bytes


class KeptFile(NamedTuple):
    """A file that is kept for a conversation: the SHA-256 digest of its bytes in hexadecimal digits, how many they are,
    and the mark under which it was kept the last time."""

    sha256: str
    size: int
    mark: str = ""


class Outgoing(NamedTuple):
    """A delivery on its way into the outbox: the id of the effect, and the name of the channel or the id of the
    agent."""

    effect_id: int
    target: str


@dataclass(frozen=True)
class Undelivered:
    """A delivery that was not acknowledged. The effect itself stands in the log, in the step `seq`.

    `attempts` counts the failed attempts; `next_attempt` is when the next one is due, None for at once. `begun` counts
    the attempts that processes have begun since the first one died, and in which they died, too.
    """

    conversation_id: str
    target: str
    effect_id: int
    seq: int
    attempts: int = 0
    next_attempt: datetime | None = None
    begun: int = 0

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        due = None if self.next_attempt is None else self.next_attempt.isoformat()
        return {**vars(self), "next_attempt": due}


@dataclass(frozen=True)
class ReplaceHead:
    """Write the head row of a conversation again."""

    conversation_id: str
    head: HeadRow


@dataclass(frozen=True)
class ReplaceDetails:
    """Write the owner of a conversation again, and what lists show of it."""

    conversation_id: str
    owner: str | None
    details: DetailsRow


@dataclass(frozen=True)
class DropDelivery:
    """Remove a delivery from the outbox that no step asked for."""

    conversation_id: str
    target: str
    effect_id: int


@dataclass(frozen=True)
class ResetDelivery:
    """Make a delivery due at once, as if it had never been tried."""

    conversation_id: str
    target: str
    effect_id: int


@dataclass(frozen=True)
class CountDeliveries:
    """Let the deliveries that are in the outbox of a conversation be those that must be in it."""

    conversation_id: str


@dataclass(frozen=True)
class DropOrphanedDeliveries:
    """Remove the deliveries that belong to no conversation."""


@dataclass(frozen=True)
class DropFile:
    """Keep a file no longer for a conversation whose log does not refer to it, if it was kept under this mark the last
    time."""

    conversation_id: str
    sha256: str
    mark: str


@dataclass(frozen=True)
class DropUnusedFiles:
    """Delete the files that are kept for no conversation."""


@dataclass(frozen=True)
class RebuildIndex:
    """Build the index of what was said again, from the logs."""


Repair: TypeAlias = (
    ReplaceHead
    | ReplaceDetails
    | DropDelivery
    | ResetDelivery
    | CountDeliveries
    | DropOrphanedDeliveries
    | DropFile
    | DropUnusedFiles
    | RebuildIndex
)
"""What a store can be told to repair."""


@dataclass(frozen=True)
class StorageFault:
    """What is wrong with a storage, in a sentence, and the repair if there is one."""

    sentence: str
    repair: Repair | None = None
