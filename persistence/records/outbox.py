"""What goes out to others and is not known to have arrived.

A step that says something to people stores, in the same transaction, one row for each of those that it goes to. The row
goes when the delivery is acknowledged; what a crash left there is delivered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class Outgoing(NamedTuple):
    """One thing that goes out with a step: the effect that wants it, and the name of who or what it goes to."""

    effect_id: int
    target: str


@dataclass(frozen=True)
class Undelivered:
    """A delivery that was not acknowledged. The effect itself stands in the log, in the step `seq`.

    `attempts` counts the attempts that were reported as failed; `next_attempt` is when the next is due, None for at
    once.
    """

    conversation_id: str
    target: str
    effect_id: int
    seq: int
    attempts: int = 0
    next_attempt: datetime | None = None
