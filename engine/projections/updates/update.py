"""The union of all updates."""

from __future__ import annotations

from typing import TypeAlias

from .live import DeliveredUpdate, DeliveryFailedUpdate, TokenUpdate, ToolProgressUpdate
from .snapshot import SnapshotUpdate
from .stored import DeliveryUpdate, MessageUpdate, StateChangeUpdate, ThoughtUpdate, ToolUpdate, TurnEndedUpdate

Update: TypeAlias = (
    SnapshotUpdate
    | StateChangeUpdate
    | MessageUpdate
    | ThoughtUpdate
    | ToolUpdate
    | DeliveryUpdate
    | TurnEndedUpdate
    | TokenUpdate
    | ToolProgressUpdate
    | DeliveredUpdate
    | DeliveryFailedUpdate
)
"""Something to show. Narrow it by its class or by its `type`. `data` is the same as JSON, and `id` is None for what is
live."""
