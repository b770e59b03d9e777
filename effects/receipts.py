"""The port by which the performers of deliveries note in the outbox what became of them."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Receipts(Protocol):
    """Notes in the outbox of one conversation what became of its deliveries. Only `begin` waits."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Record that the target has received the effect, which need not be delivered again."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Record that the `attempts`-th attempt has failed, and that the next one is due at `next_attempt`."""
        ...

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Record that the `begun`-th attempt in a row begins at what an earlier process has left. Returns when it is
        stored, so that a process which dies in the attempt leaves its trace. Raises `StorageFailed`."""
        ...
