"""Receipts of deliveries, until they are stored.

Nobody waits for a receipt: if one is lost, a delivery is made once more, which is all that can happen. So receipts are
stored with the next commit. If none comes for a while they are stored in a commit of their own, and they are kept if
the disk fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from ..tables import recorder
from ..tables.recorder import OutboxKey, Postponement

LONGEST_DELAY = 0.05
"""Seconds that a receipt waits for a commit to join. Chosen so that a crash rarely repeats a delivery."""

RETRY_DELAY = 1.0
"""Seconds between attempts to store receipts that the disk did not take. Chosen so that a full disk gets some rest."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a delivery: it arrived, or an attempt failed."""

    key: OutboxKey
    postponement: Postponement | None = None


class PendingReceipts:
    """The receipts that are not stored yet, one for each delivery. True if there are any."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._postponements: dict[OutboxKey, Postponement | None] = {}
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._postponements)

    @property
    def remaining(self) -> float:
        """For how many seconds they may still wait for a commit to join; zero or less if they are due."""
        return self._due - self._monotonic()

    def add(self, receipt: Receipt) -> None:
        """Keep a receipt. It replaces an older one of the same delivery, unless that one says that it has arrived."""
        if not self._postponements:
            self._due = self._monotonic() + LONGEST_DELAY
        has_arrived = self._postponements.get(receipt.key, receipt.postponement) is None
        self._postponements[receipt.key] = None if has_arrived else receipt.postponement

    def write(self, driver: sqlite3.Connection) -> None:
        """Write the receipts within the transaction of the caller, who must `clear` them after its commit."""
        recorder.note(driver, self._postponements.items())

    def clear(self) -> None:
        """Forget the receipts, because they are stored."""
        self._postponements.clear()

    def retry_later(self) -> None:
        """Try again after `RETRY_DELAY`, because the disk did not take them."""
        self._due = self._monotonic() + RETRY_DELAY
