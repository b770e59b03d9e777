"""Faults of a storage, and the repairs that follow from the log alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .rows import DetailsRow, HeadRow


@dataclass(frozen=True)
class ReplaceHead:
    """Write the head row of a conversation again."""

    conversation_id: str
    head: HeadRow


@dataclass(frozen=True)
class ReplaceDetails:
    """Write the owner of a conversation again, and what lists show of it."""

    conversation_id: str
    owner: str | None
    details: DetailsRow


@dataclass(frozen=True)
class DropDelivery:
    """Remove a delivery from the outbox that no step asked for."""

    conversation_id: str
    target: str
    effect_id: int


@dataclass(frozen=True)
class ResetDelivery:
    """Make a delivery due at once, as if it had never been tried."""

    conversation_id: str
    target: str
    effect_id: int


@dataclass(frozen=True)
class CountDeliveries:
    """Let the deliveries that are in the outbox of a conversation be those that must be in it."""

    conversation_id: str


@dataclass(frozen=True)
class DropOrphanedDeliveries:
    """Remove the deliveries that belong to no conversation."""


@dataclass(frozen=True)
class RebuildIndex:
    """Build the index of what was said again, from the logs."""


Repair: TypeAlias = (
    ReplaceHead
    | ReplaceDetails
    | DropDelivery
    | ResetDelivery
    | CountDeliveries
    | DropOrphanedDeliveries
    | RebuildIndex
)
"""What a store can be told to repair."""


@dataclass(frozen=True)
class StorageFault:
    """What is wrong with a storage, in a sentence, and the repair if there is one."""

    sentence: str
    repair: Repair | None = None
