"""A step on its way into a log, and the position in the log behind which it is stored."""

from __future__ import annotations

from ....states.events import DetailsChanged, UserMessage
from ...errors import StoreConflict
from ...records.codec import EncodedStep
from ...records.digests import link
from ...records.outbox import Outgoing
from ..tables.details_recorder import DetailsEvent
from ..tables.recorder import Head
from .pending_result import PendingResult


class LogPosition:
    """The newest step of a conversation, as far as one log knows it.

    Only the holder of the writer's lock changes it, right after a commit, so that a step counts although its caller
    stopped waiting.

    `origin` is the link of the first step. `in_doubt` is the link of a step whose commit was reported as failed: the
    disk may have stored it. `is_titled` says that a message of a user has given the conversation its title, so that no
    later one need try.
    """

    __slots__ = ("head", "in_doubt", "is_titled", "origin")

    def __init__(self, head: Head, origin: bytes, *, is_titled: bool) -> None:
        self.head = head
        self.origin = origin
        self.is_titled = is_titled
        self.in_doubt: bytes | None = None


class Append(PendingResult):
    """A step to be stored behind `position`, and the result that its caller waits for. One object, because the garbage
    collector walks what waits.

    The tables take it as an `Advance`: `before`, `after` and `details` are there once it is linked.
    """

    __slots__ = ("after", "before", "details", "encoded", "is_stored", "outgoing", "position")

    def __init__(self, position: LogPosition, encoded: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        super().__init__()
        self.position = position
        self.encoded = encoded
        self.outgoing = outgoing
        self.is_stored = False

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of the step."""
        return self.is_stored or self.error is not None

    def link(self) -> None:
        """Link the step to the newest one. Raises `StoreConflict` if it does not follow that."""
        key, seq, chain = before = self.position.head
        if self.encoded.row.seq != seq + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        self.before = before
        self.after = Head(key, seq + 1, link(chain, self.encoded.content))
        self.details = self._details_event()

    def note_stored(self) -> None:
        """The linked step is stored: its position moves behind it."""
        position = self.position
        position.head, position.in_doubt = self.after, None
        position.is_titled = position.is_titled or isinstance(self.details, UserMessage)
        self.is_stored = True

    def _details_event(self) -> DetailsEvent | None:
        """Return the event if storing it changes what lists show of the conversation."""
        event = self.encoded.event
        if isinstance(event, DetailsChanged) or (isinstance(event, UserMessage) and not self.position.is_titled):
            return event
        return None
