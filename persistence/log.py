"""One conversation's place in the store: it takes the next step, and never a step twice."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from ..states.events import Event
from ..states.step import Step
from . import recorder
from .codec import encode
from .database import Database
from .errors import StoreConflict
from .recorder import Head


class ConversationLog:
    """The log of one conversation, open at its end. Made by `Store.create` and `Store.load`."""

    def __init__(self, database: Database, conversation_id: str, head: Head) -> None:
        self.conversation_id = conversation_id
        self._database = database
        self._head = head

    @property
    def seq(self) -> int:
        """The newest step that is known to be stored."""
        return self._head.seq

    async def append(self, event: Event, step: Step) -> None:
        """Store a step that was not ignored: the event, its effects, the new state. Durable when this returns.

        The step must follow the one at `seq`. Raises `StoreConflict` if it does not, or if the log has moved on
        elsewhere, and `StorageFailed` if the disk does not do its work (case P28). Then nothing is stored, this
        object is as before, and the same step may be handed in again.

        A caller that is cancelled stops waiting, but the step is stored and `seq` advances all the same.
        """
        await self._database.write(lambda connection: self._advance(connection, event, step), then=self._rest_at)

    def _advance(self, connection: Connection, event: Event, step: Step) -> Head:
        row, rest = encode(event, step, self._head.chain)
        if row.seq != self._head.seq + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        try:
            head = recorder.advance(connection, self._head, row, rest)
        except IntegrityError as error:
            raise StoreConflict("The request, or the answer to the effect, is already in the log.") from error.orig
        if head is None:
            raise StoreConflict("The conversation has moved on, or was deleted, since it was loaded.")
        return head

    def _rest_at(self, head: Head) -> None:
        self._head = head
