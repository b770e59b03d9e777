"""Messages that wait: said while a turn was under way, and not answered yet.

A queued message begins the next turn; a steered one enters this turn before its next model request, or begins the
next turn if this one ends first. A message leaves by entering the transcript or by being withdrawn, never otherwise.
"""

from __future__ import annotations

from .value import Value

MAX_INBOX = 100
"""Messages that may wait at once. Ours: far more than a person types during a turn."""


class Waiting(Value):
    """A message that waits: the request that brought it, and the step where its text stands."""

    event_id: str
    seq: int
    steer: bool = False
