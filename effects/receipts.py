"""Where it is noted what has reached its target, and what has not."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Receipts(Protocol):
    """The outbox, where what is still to be delivered stands. The store fills this port; neither method waits."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """The target has it: it need not be delivered again."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """The target did not take it: so many attempts failed, and the next comes then."""
        ...
