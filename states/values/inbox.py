"""Messages that wait: said while a turn was under way, and not answered yet.

A queued message begins the next turn; a steered one enters this turn before its next model request, or begins the next
turn if this one ends first. What another agent says waits in the same line: it begins a turn of its own, or, if it is
silent, enters with whatever comes next and wakes nothing. A message leaves by entering the transcript or by being
withdrawn, never otherwise.
"""

from __future__ import annotations

from .acts import Audience
from .value import Part

MAX_INBOX = 100
"""How many messages may wait at once. Chosen so that no person reaches it by typing during a turn."""


class Waiting(Part):
    """A message that waits: the request that brought it, and the step where its text stands.

    `audience` is set on what another agent wrote.
    """

    event_id: str
    seq: int
    steer: bool = False
    audience: Audience | None = None
    silent: bool = False


def first_batch(inbox: tuple[Waiting, ...]) -> tuple[Waiting, ...]:
    """The messages that begin the next turn: those of people together, as far as they stand together; one of another
    agent by itself; silent ones that came before it with either. `Pure.`"""
    batch: list[Waiting] = []
    first: Waiting | None = None
    for waiting in inbox:
        if not waiting.silent:
            if first is not None and (first.audience is not None or waiting.audience is not None):
                break
            first = first or waiting
        batch.append(waiting)
    return tuple(batch)
