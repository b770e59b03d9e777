"""A step on its way into a log, and the position in the log behind which it is stored."""

from __future__ import annotations

from ....states.events import DetailsChanged, Event, UserMessage
from ...errors import StoreConflict
from ...records.codec import EncodedStep
from ...records.digests import link
from ...records.outbox import Outgoing
from ..tables.details_recorder import DetailsEvent
from ..tables.recorder import Advance, Head
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

    def advance(self, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> Advance:
        """Return a step, linked to the newest one. Raises `StoreConflict` if it does not follow that."""
        key, seq, chain = head = self.head
        if step.row.seq != seq + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        following = Head(key, seq + 1, link(chain, step.content))
        return Advance(head, following, step, outgoing, self._details_event(step.event))

    def _details_event(self, event: Event) -> DetailsEvent | None:
        """Return the event if storing it changes what lists show of the conversation."""
        if isinstance(event, DetailsChanged) or (isinstance(event, UserMessage) and not self.is_titled):
            return event
        return None

    def move(self, advance: Advance) -> None:
        """Stand behind a step that was stored."""
        self.head, self.in_doubt = advance.following, None
        self.is_titled = self.is_titled or isinstance(advance.details, UserMessage)


class Append(PendingResult):
    """A step on its way to the disk, for which its caller waits."""

    __slots__ = ("outgoing", "position", "step")

    def __init__(self, position: LogPosition, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        super().__init__()
        self.position = position
        self.step = step
        self.outgoing = outgoing

    def advance(self) -> Advance:
        """Return the step as `LogPosition.advance` does."""
        return self.position.advance(self.step, self.outgoing)
