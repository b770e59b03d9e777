"""The receipts of deliveries that are not stored yet.

Nobody waits for a receipt: if one is lost, a delivery is made once more, which is all that can happen. So those of all
conversations are collected for a moment and stored together, and are kept while the server cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import psycopg

from ..errors import StoreError
from ..sql.statements import Driver
from ..sql.writing import OutboxKey, Postponement, note

logger = logging.getLogger("turnwise.store")

LONGEST_DELAY = 0.05
"""Seconds for which receipts are collected. Chosen so that a crash rarely repeats a delivery."""

RETRY_DELAY = 1.0
"""Seconds between attempts to store receipts that the server did not take."""

Write = Callable[[Callable[[Driver], None]], Awaitable[None]]


class PendingReceipts:
    """Receipts that wait, one for each delivery. Belongs to one event loop. `write` runs work in a transaction."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: dict[OutboxKey, Postponement | None] = {}
        self._storing = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None

    def add(self, key: OutboxKey, postponement: Postponement | None) -> None:
        """Keep a receipt. It replaces an older one of the same delivery, unless that one says that it has arrived."""
        has_arrived = self._waiting.get(key, postponement) is None
        self._waiting[key] = None if has_arrived else postponement
        if self._later is None:
            self._later = asyncio.ensure_future(self._store_later())

    async def flush(self) -> None:
        """Store what waits. Raises `StorageFailed`; then it is kept, and tried again later."""
        async with self._storing:
            if not self._waiting:
                return
            receipts, self._waiting = self._waiting, {}
            try:
                await self._note(sorted(receipts.items()))
            except BaseException:
                newer, self._waiting = self._waiting, receipts
                for key, postponement in newer.items():
                    self.add(key, postponement)
                raise

    async def _note(self, receipts: Iterable[tuple[OutboxKey, Postponement | None]]) -> None:
        try:
            await self._write(lambda driver: note(driver, receipts))
        except psycopg.IntegrityError:  # a conversation was deleted just then, and is passed over now
            await self._write(lambda driver: note(driver, receipts))

    async def close(self) -> None:
        """Store what waits, if the server takes it."""
        if self._later is not None:
            self._later.cancel()
        try:
            await self.flush()
        except StoreError as error:
            logger.warning("Receipts of deliveries could not be stored, so these are made again: %s", error)

    async def _store_later(self) -> None:
        delay = LONGEST_DELAY
        try:
            while self._waiting:
                await asyncio.sleep(delay)
                try:
                    await self.flush()
                except StoreError as error:
                    logger.warning("The receipts of deliveries could not be stored and are kept: %s", error)
                    delay = RETRY_DELAY
        finally:
            self._later = None
