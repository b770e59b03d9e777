"""One conversation's place in the store: it takes the next step, and never a step twice."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ...states.events import Event
from ...states.step import Step
from ..records.codec import EncodedStep, to_microseconds
from ..records.outbox import Outgoing
from .append import Place
from .database import Database
from .receipts import Receipt
from .recorder import OutboxKey, Postponement


class ConversationLog:
    """The log of one conversation, open at its end. Made by `Store.create` and `Store.load`."""

    def __init__(self, database: Database, place: Place) -> None:
        self._database = database
        self._place = place

    @property
    def seq(self) -> int:
        """The newest step that is known to be stored."""
        return self._place.head.seq

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        """Store a step that was not ignored: the event, its effects, the new state. Durable when this returns.

        `targets` are what goes out with it, and to whom; each is in the outbox, once, until it is acknowledged.

        The step must follow the one at `seq`. Raises `StoreConflict` if it does not, or if the log has moved on
        elsewhere, and `StorageFailed` if the disk does not do its work (case P28). Then nothing is stored, this
        object is as before, and the same step may be handed in again; should the disk have stored it in spite of its
        complaint, that is found then.

        A caller that is cancelled stops waiting, but the step is stored and `seq` advances all the same.
        """
        self._database.stir()
        await self._database.append(
            self._place, EncodedStep.of(event, step), tuple(dict.fromkeys(Outgoing(*target) for target in targets))
        )

    def acknowledge(self, effect_id: int, target: str) -> None:
        """The delivery has arrived: it leaves the outbox.

        Returns at once. It is stored with the next step of any conversation, or a moment later, and kept until the
        disk takes it; a crash before that has it delivered once more. What is not in the outbox is not missed.
        """
        self._database.note(Receipt(self._key(effect_id, target)))

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """An attempt to deliver has failed, the `attempts`-th; the next one is due at `next_attempt`.

        Stored like `acknowledge`, and without effect once the delivery is acknowledged.
        """
        postponement = Postponement(attempts, to_microseconds(next_attempt))
        self._database.note(Receipt(self._key(effect_id, target), postponement))

    def _key(self, effect_id: int, target: str) -> OutboxKey:
        return OutboxKey(self._place.head.key, target, effect_id, self._place.origin)
