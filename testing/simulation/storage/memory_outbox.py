"""The outbox of a store in memory: what is still to be handed over, and the receipts that are not stored yet.

As in a real store, a receipt is stored with the next step of its process, or when the store is closed. A process that
dies before has handed something over that is still in the outbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from .storage import Delivered

if TYPE_CHECKING:
    from ....persistence.records import Undelivered


@dataclass(frozen=True)
class OutboxEntry:
    """What is to reach one target: the step that stored it, the process that did, and the attempts so far."""

    seq: int
    writer: str
    attempts: int = 0
    next_attempt: datetime | None = None
    begun: int = 0


@dataclass(frozen=True)
class Receipt:
    """What became of an attempt: it has arrived, or the next attempt is due at `next_attempt`."""

    delivered: Delivered
    attempts: int = 0
    next_attempt: datetime | None = None


class MemoryOutbox:
    """The outbox of all conversations. `settled` is what was taken out of it."""

    def __init__(self) -> None:
        self.entries: dict[Delivered, OutboxEntry] = {}
        self.settled: set[Delivered] = set()

    def add(self, conversation_id: str, seq: int, writer: str, targets: Iterable[tuple[int, str]]) -> None:
        """Store what a step hands over."""
        for effect_id, target in targets:
            self.entries[conversation_id, target, effect_id] = OutboxEntry(seq, writer)

    def store_receipts(self, receipts: list[Receipt]) -> None:
        """Store these receipts, and leave none of them in the list."""
        for receipt in receipts:
            entry = self.entries.get(receipt.delivered)
            if entry is None:
                continue
            if receipt.next_attempt is None:
                del self.entries[receipt.delivered]
                self.settled.add(receipt.delivered)
            else:
                self.entries[receipt.delivered] = replace(
                    entry, attempts=receipt.attempts, next_attempt=receipt.next_attempt, begun=0
                )
        receipts.clear()

    def begin(self, delivered: Delivered, begun: int) -> None:
        """Store that an attempt begins at what an earlier process has left."""
        if (entry := self.entries.get(delivered)) is not None:
            self.entries[delivered] = replace(entry, begun=begun)

    def drop(self, conversation_id: str) -> None:
        """Remove what belongs to a conversation that was deleted."""
        for delivered in [one for one in self.entries if one[0] == conversation_id]:
            del self.entries[delivered]

    def writers_of(self, conversation_id: str) -> set[str]:
        """The names of the processes that have put something into the outbox which is still in it."""
        return {entry.writer for delivered, entry in self.entries.items() if delivered[0] == conversation_id}

    def undelivered(self, conversation_ids: Iterable[str]) -> tuple[Undelivered, ...]:
        """What is in the outbox of these conversations, for each target in the order in which it was stored."""
        from ....persistence.records import Undelivered

        wanted = set(conversation_ids)
        found = [
            Undelivered(*delivered, entry.seq, entry.attempts, entry.next_attempt, entry.begun)
            for delivered, entry in self.entries.items()
            if delivered[0] in wanted
        ]
        return tuple(sorted(found, key=lambda one: (one.conversation_id, one.target, one.seq, one.effect_id)))
