"""The port behind which a store stands: what an engine needs of a place that keeps conversations.

`Store` fills it with SQLite. Who writes another one holds it to `turnwise.testing.store_contract`, which says in tests
what is said here in words. The errors are those of `persistence.errors`, and `UnknownConversation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from ..states.events import Event, Opened
from ..states.log import LogEntry
from ..states.states import State
from ..states.step import Step
from .records.outbox import Undelivered
from .records.summary import Summary


class LogPort(Protocol):
    """The log of one conversation, open at its end."""

    @property
    def seq(self) -> int:
        """The newest step that is known to be stored."""
        ...

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step and what goes out with it, whole or not at all, durably when this returns.

        Raises `StoreConflict` if the step does not follow the newest one, or a request or an answer with its id is in
        the log already, and `StorageFailed` if it could not be stored. Then nothing has changed, and the same step may
        be handed in again; if it is the newest in the log by then, that is no conflict. Whoever is cancelled while he
        waits does not keep the step from being stored.
        """
        ...

    def acknowledge(self, effect_id: int, target: str) -> None:
        """The delivery has arrived. Returns at once; stored soon, at the latest when the store is closed."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """The `attempts`-th attempt to deliver has failed; the next is due then. Stored like `acknowledge`, and without
        effect behind one."""
        ...


class LoadedPort(Protocol):
    """A conversation as it was left."""

    @property
    def log(self) -> LogPort:
        """Its log, open for the next step."""
        ...

    @property
    def state(self) -> State:
        """Where it rests."""
        ...

    @property
    def entries(self) -> Sequence[LogEntry]:
        """All steps so far, in order."""
        ...


class StorePort(Protocol):
    """All conversations of one place. Whoever opened it must `close` it."""

    async def create(self, conversation_id: str, event: Opened, step: Step) -> LogPort:
        """Store a new conversation with its first step. Raises `StoreConflict` if there is one with this id."""
        ...

    async def load(self, conversation_id: str) -> LoadedPort:
        """The conversation as it was left. Raises `UnknownConversation`, and `Damaged` if it is not whole."""
        ...

    async def entries(self, conversation_id: str, after: int = 0) -> Sequence[LogEntry]:
        """The steps behind the step `after`, in order. Raises `UnknownConversation`."""
        ...

    async def list(self) -> Sequence[Summary]:
        """All conversations, the one that moved last first."""
        ...

    async def waiting(self) -> Sequence[str]:
        """The ids of those with something to do when the store is opened: work, a timer, something to deliver."""
        ...

    async def outbox(self) -> Sequence[Undelivered]:
        """What is still to be delivered; for each conversation and target in the order in which it was said."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation and all that belongs to it. Raises `UnknownConversation`."""
        ...

    async def close(self) -> None:
        """Finish what was handed in, and let go. To close twice is to close once; any other call raises `StoreError`
        then."""
        ...
