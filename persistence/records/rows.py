"""The rows in which a conversation is stored: its steps, where it stands, its deliveries, and what lists show of it.

Moments are whole microseconds since 1970, in UTC. The values are as they are stored: after damage a value may be of
another type than the one that is declared here.
"""

from __future__ import annotations

from typing import NamedTuple


class EventRow(NamedTuple):
    """One step: the event, what it led to, the digest of the state after it, and its link in the chain."""

    seq: int
    event_id: str | None
    effect_id: int | None
    type: str
    version: int
    at: int
    turn: int
    payload: str
    effects: str | None
    ended: str | None
    state: bytes
    chain: bytes


class HeadRow(NamedTuple):
    """Where a conversation stands: the number and the link of its newest step, and the state after it in full.

    All values but the first two and `state` follow from the state and the newest step. They are stored so that
    conversations can be found by them. `next_timer` is when a timer of the turn is due, and `wakes_at` the next
    scheduled wake-up.
    """

    seq: int
    chain: bytes
    state_type: str
    waits: bool
    next_timer: int | None
    updated_at: int
    state: str
    wakes_at: int | None = None


class OutboxRow(NamedTuple):
    """One delivery that is not acknowledged: where it goes, which effect of which step it is, how many attempts have
    failed, when the next one is due (None: at once), and in how many of the attempts that were begun after a crash the
    process has died."""

    target: str
    effect_id: int
    seq: int
    attempts: int = 0
    next_attempt: int | None = None
    begun: int = 0


class DetailsRow(NamedTuple):
    """What a store keeps to list a conversation: the title that the application gave, the title that the first message
    of a user gives, the metadata as a JSON object, a digest for each value in it, sorted, and its role
    among agents. What a conversation does not have is None, and so is the role `foreground`."""

    title: str | None = None
    first_message: str | None = None
    metadata: str | None = None
    entries: tuple[bytes, ...] = ()
    role: str | None = None
    parent: str | None = None
    works_for: str | None = None

    @property
    def agent(self) -> tuple[str | None, ...]:
        """The role, and the conversations that it belongs to."""
        return self.role, self.parent, self.works_for
