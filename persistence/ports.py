"""The ports of a store: what an engine, and the maintenance of a database, need from it.

`SqliteStore` implements them. A store of another kind implements them too, and is tested by
`turnwise.testing.store_contract`, which turns these docstrings into tests. The errors are those of
`persistence.errors`, and `UnknownConversation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from ..states.context import Context
from ..states.events import Event, Opened
from ..states.states import AnyState
from ..states.step import Step
from .records.conversation_record import ConversationRecord
from .records.entry import StoredEntry
from .records.outbox import Undelivered
from .records.storage import Repair, StorageFault
from .records.summary import Summary


class Log(Protocol):
    """The log of one conversation, open at its end."""

    @property
    def seq(self) -> int:
        """The number of the newest step that this log knows to be stored."""
        ...

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step and its deliveries in one transaction. The step is durable when this returns.

        `targets` are the deliveries: the id of the effect, and the name of a channel. Each stays in the outbox until it
        is acknowledged. A delivery that is given twice is one delivery.

        Raises `StoreConflict` if the log has moved on (the step does not follow the newest one), if the conversation
        was deleted, or if a request or an answer with the same id is in the log already; and `StorageFailed` if the
        step could not be stored. Nothing has changed then, and the same step may be appended again: if this log's
        failed attempt did store it after all, the second call finds it and succeeds. An equal step that another log
        has stored is a conflict, so that only one of two writers performs its effects.

        A caller that is cancelled stops waiting; the step is stored all the same.
        """
        ...

    async def request(self, event_id: str) -> StoredEntry | None:
        """Return the step that took the request with this id, or None. The cost does not grow with the log."""
        ...

    async def catch_up(self) -> tuple[StoredEntry, ...]:
        """Return the steps that others have stored behind `seq`, and move on to the newest of them: what to do after a
        `StoreConflict`.

        Raises `UnknownConversation` if the conversation was deleted, and `Damaged` if these steps do not follow the
        one at `seq`.
        """
        ...

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Remove a delivery that has arrived from the outbox. Returns at once; it is stored soon, at the latest when
        the store is closed. Without effect if there is no such delivery, or if the conversation was deleted."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Store that a delivery has failed `attempts` times and when the next attempt is due. Stored like
        `acknowledge`, and without effect where that has none."""
        ...


@dataclass(frozen=True)
class LoadedConversation:
    """What a conversation needs for its next step: its log, open at the end, the state that it rests in, and its
    context. The steps so far are read with `Store.entries`."""

    log: Log
    state: AnyState
    context: Context


class Store(Protocol):
    """All conversations of one storage. Whoever opened it must `close` it."""

    # --- one conversation

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        """Store a new conversation with its first step. It belongs to the `owner` of the event. Raises `StoreConflict`
        if the id is taken."""
        ...

    async def load(self, conversation_id: str) -> LoadedConversation:
        """Return the conversation as it was left. The cost does not grow with the log.

        Raises `UnknownConversation`, and `Damaged` if what is read here is not what was stored. Damage further back in
        the log is found by `entries`.
        """
        ...

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Return the steps that follow the step `after`, in order, up to and including the step `up_to` or the newest.
        Whoever follows a log asks for the steps after the last one seen.

        Raises `UnknownConversation`, and `Damaged` if one of these steps is missing or is not what was stored.
        """
        ...

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation and everything that belongs to it. Raises `UnknownConversation`."""
        ...

    # --- many conversations

    async def list(
        self,
        *,
        owner: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> tuple[Summary, ...]:
        """Return summaries, the conversation that moved last first.

        `owner`, `metadata` and `state` (the literal of a state, such as `idle`) select. Of metadata, a conversation
        must have all the given values under their names, compared as `json_identity` does: 1 is neither "1" nor true.
        Owner, title and metadata follow from the log as `Details` says.

        `limit` is the size of a page, and `before` the id of the last conversation of the page before. If that
        conversation has moved in the meantime, the page begins at its new place: some conversations are listed twice.
        Another one that moves between two pages comes before them, and is not on those that follow. Raises
        `UnknownConversation` if `before` is not stored.
        """
        ...

    async def claim(self, limit: int) -> tuple[str, ...]:
        """Return the ids of up to `limit` conversations that wait for work, for a timer or for a delivery, and that
        this store has not returned here before, or that were released since. The one whose timer is due first comes
        first. Empty when there are no more.

        A store does not know which conversations an engine began after its last claim. So an engine that is opened over
        a store while another engine runs turns over it would take these over, too: open engines that share a store
        before they work, or have `claim` return each of them its own share."""
        ...

    async def release(self, conversation_ids: Iterable[str]) -> None:
        """Let these conversations be claimed again: whoever claimed them does not drive them any more. Ids that are
        not claimed are passed over."""
        ...

    async def outbox(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """Return the deliveries of these conversations that are not acknowledged; for each conversation and target in
        the order in which they were appended."""
        ...

    # --- raw records, for maintenance

    async def ids(self, prefix: str = "") -> tuple[str, ...]:
        """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
        ...

    async def read_record(self, conversation_id: str) -> ConversationRecord:
        """Return the rows of a conversation as they are stored, damaged or not. Raises `UnknownConversation`."""
        ...

    async def write_records(self, records: Iterable[ConversationRecord]) -> None:
        """Store conversations with all their steps, all of them or none. Raises `StoreConflict` if an id is taken."""
        ...

    async def copy(self, source_id: str, record: ConversationRecord) -> None:
        """Store `record`, which was made from the conversation `source_id`, unless that one has been deleted in the
        meantime. Raises `UnknownConversation` and `StoreConflict`."""
        ...

    async def close(self) -> None:
        """Finish what was handed in, and release the storage. A second call does nothing; every other method raises
        `StoreError` afterwards."""
        ...


@runtime_checkable
class RepairableStorage(Protocol):
    """What a store may offer besides, if its storage can be damaged and repaired. The doctor asks for it."""

    async def examine_storage(self) -> tuple[StorageFault, ...]:
        """Return what is wrong with the storage as a whole, apart from the conversations in it."""
        ...

    async def repair(self, repairs: Iterable[Repair]) -> None:
        """Make these repairs, all of them or none. Raises `StorageFailed`."""
        ...
