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

    def note_stored(self, step: Append) -> None:
        """Stand behind a step that was stored."""
        self.head, self.in_doubt = step.following, None
        self.is_titled = self.is_titled or isinstance(step.details, UserMessage)


class Append(PendingResult):
    """A step on its way into the tables, which take it as an `Advance`, and its outcome. It is one object, because the
    garbage collector walks what waits.

    It is stored behind `position`; `head`, `following` and `details` are there once it is linked.
    """

    __slots__ = ("details", "following", "head", "outgoing", "position", "step")

    def __init__(self, position: LogPosition, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        super().__init__()
        self.position = position
        self.step = step
        self.outgoing = outgoing

    def link(self) -> None:
        """Link the step to the newest one. Raises `StoreConflict` if it does not follow that."""
        self.head = key, seq, chain = self.position.head
        if self.step.row.seq != seq + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        self.following = Head(key, seq + 1, link(chain, self.step.content))
        self.details = self._details_event()

    def _details_event(self) -> DetailsEvent | None:
        """Return the event if storing it changes what lists show of the conversation."""
        event = self.step.event
        if isinstance(event, DetailsChanged) or (isinstance(event, UserMessage) and not self.position.is_titled):
            return event
        return None
