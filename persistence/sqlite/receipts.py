"""What became of deliveries, until it is stored.

Nobody waits for a receipt: the worst that a lost one does is that something is delivered once more. So receipts ride
along with the next commit. They wait a while for one to come, then make one of their own, and stay if the disk fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from . import recorder
from .recorder import OutboxKey, Postponement

LINGER = 0.05
"""Seconds that a receipt waits for a commit to ride on. Ours: a crash in that time repeats a delivery."""

RETRY = 1.0
"""Seconds between attempts to store receipts that the disk did not take. Ours."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a delivery: it arrived, or an attempt has failed."""

    key: OutboxKey
    postponement: Postponement | None = None


class PendingReceipts:
    """The receipts that are not stored yet: of each delivery the one that counts. It is true if there are any."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._postponements: dict[OutboxKey, Postponement | None] = {}
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._postponements)

    @property
    def patience(self) -> float:
        """For how many seconds they still wait for a commit to ride on; none or less if they are due."""
        return self._due - self._monotonic()

    def add(self, receipt: Receipt) -> None:
        """Keep it until it is stored. The newest counts, except that an arrival is never taken back."""
        if not self._postponements:
            self._due = self._monotonic() + LINGER
        has_arrived = self._postponements.get(receipt.key, receipt.postponement) is None
        self._postponements[receipt.key] = None if has_arrived else receipt.postponement

    def write(self, driver: sqlite3.Connection) -> None:
        """Write them into the outbox, within the transaction of the caller, who must `clear` them behind its commit."""
        recorder.note(driver, self._postponements.items())

    def clear(self) -> None:
        """They are stored."""
        self._postponements.clear()

    def put_off(self) -> None:
        """The disk did not take them: try it again later."""
        self._due = self._monotonic() + RETRY
