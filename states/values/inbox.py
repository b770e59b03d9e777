"""Messages that arrived during a turn and are not answered yet.

A queued message begins the next turn. A steered message enters this turn before its next model request, or begins the
next turn if this one ends first. A message of another agent begins a turn of its own, or, if it is silent, enters with
whatever comes next. A message leaves the inbox by entering the transcript or by being withdrawn, never otherwise.
"""

from __future__ import annotations

from datetime import datetime

from .acts import Audience
from .messages import Heard
from .part import Part
from .value import Instant

MAX_INBOX = 100
"""How many messages may wait at once. Chosen so that no person reaches it by typing during a turn."""


class Waiting(Part):
    """A message in the inbox: the id of its request, and the step where its text is.

    `audience` is set for a message of another agent, and for a wake-up, which is `scheduled`.
    `origin` is the agent that wrote it, to be told if nobody reads it; empty in logs that began before revision 4.
    """

    event_id: str
    seq: int
    steer: bool = False
    audience: Audience | None = None
    silent: bool = False
    scheduled: bool = False
    origin: str = ""


class Owed(Part):
    """A message for the user that a turn took up at `since` and that no turn has passed on yet. `origin` is the agent
    that wrote it, to be told if nobody ever does."""

    said: Heard
    since: Instant
    origin: str = ""

    def has_lapsed(self, at: datetime, deadline: float | None) -> bool:
        """Whether it need not be passed on any more, `deadline` seconds after it was taken up. `Pure.`"""
        return deadline is not None and (at - self.since).total_seconds() > deadline


def first_batch(inbox: tuple[Waiting, ...]) -> tuple[Waiting, ...]:
    """The messages that begin the next turn: the consecutive messages of people together, or one message of another
    agent, either with the silent messages that came before. `Pure.`"""
    batch: list[Waiting] = []
    first: Waiting | None = None
    for waiting in inbox:
        if not waiting.silent:
            if first is not None and (first.audience is not None or waiting.audience is not None):
                break
            first = first or waiting
        batch.append(waiting)
    return tuple(batch)
