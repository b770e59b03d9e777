"""A step on its way into the log, and the place in it where it is to stand."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import StoreConflict
from ..records.codec import EncodedStep
from ..records.outbox import Outgoing
from ..records.rows import Head
from .pending_result import PendingResult
from .recorder import Advance


class Place:
    """Where a conversation stands in the log, as far as it is known to be stored.

    It is moved on by the writing thread alone, right after a commit, so that a step whose caller no longer waits counts
    all the same.
    """

    __slots__ = ("head", "origin")

    def __init__(self, head: Head, origin: bytes) -> None:
        self.head = head
        self.origin = origin


@dataclass(slots=True)
class Append:
    """A step on its way to the disk, and who waits for it."""

    place: Place
    draft: EncodedStep
    outgoing: tuple[Outgoing, ...]
    promise: PendingResult = field(default_factory=PendingResult)

    def advance(self) -> Advance:
        """The step, linked to the newest one. Raises `StoreConflict` if it does not follow that."""
        head = self.place.head
        if self.draft.row.seq != head.seq + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        return Advance(head, *self.draft.behind(head.chain), self.outgoing)
