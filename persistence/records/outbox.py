"""Deliveries that are not known to have arrived.

A step that says something to people stores, in the same transaction, one row for each channel that it goes to; a step
that writes to another agent stores one row for that agent. The row is removed when the delivery is acknowledged. What a
crash left in the outbox is delivered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


class Outgoing(NamedTuple):
    """A delivery on its way into the outbox: the id of the effect, and the name of the channel or the id of the
    agent."""

    effect_id: int
    target: str


@dataclass(frozen=True)
class Undelivered:
    """A delivery that was not acknowledged. The effect itself stands in the log, in the step `seq`.

    `attempts` counts the failed attempts; `next_attempt` is when the next one is due, None for at once. `begun` counts
    the attempts that processes have begun since the first one died, and in which they died, too.
    """

    conversation_id: str
    target: str
    effect_id: int
    seq: int
    attempts: int = 0
    next_attempt: datetime | None = None
    begun: int = 0

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        due = None if self.next_attempt is None else self.next_attempt.isoformat()
        return {**vars(self), "next_attempt": due}
