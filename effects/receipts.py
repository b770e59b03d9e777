"""The port by which the performers of deliveries note in the outbox what became of them."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Receipts(Protocol):
    """Notes in the outbox of one conversation what became of its deliveries. Neither method waits."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Record that the target has received the effect, which need not be delivered again."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Record that the `attempts`-th attempt has failed, and that the next one is due at `next_attempt`."""
        ...
