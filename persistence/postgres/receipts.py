"""The receipts of deliveries that are not stored yet.

Nobody waits for a receipt: if one is lost, a delivery is made once more, which is all that can happen. So those of all
conversations are collected for a moment and stored together, and are kept while the server cannot be reached.

A process that stood still may note late that an attempt has failed. Meanwhile another one looks after the conversation,
and has noted more, so how often it has failed and when the next attempt is due are dropped. But the process has not
died in that attempt, although it was counted so: it is counted from 0 again, or what a channel does not take would be
left out after two processes that stood still. And what has arrived has arrived, whoever says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import psycopg

from ..errors import StoreError
from ..sql.statements import Driver
from ..sql.writing import OutboxKey, Postponement, begin_attempt, note
from .custody import fences

logger: logging.Logger = logging.getLogger("turnwise.store")

LONGEST_DELAY = 0.05
"""Seconds for which receipts are collected. Chosen so that a crash rarely repeats a delivery."""

RETRY_DELAY = 1.0
"""Seconds between attempts to store receipts that the server did not take."""

Write = Callable[[Callable[[Driver], None]], Awaitable[None]]


class Receipt(NamedTuple):
    """What became of a delivery: it has arrived, unless it is tried again later. `fence` is that of the custody under
    which it was tried, if any. `is_counted` says that the process counted as dead until it notes this."""

    postponement: Postponement | None = None
    fence: int | None = None
    is_counted: bool = False


class PendingReceipts:
    """Receipts that wait, one for each delivery. Belongs to one event loop. `write` runs work in a transaction."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: dict[OutboxKey, Receipt] = {}
        self._storing = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None

    def add(self, key: OutboxKey, receipt: Receipt) -> None:
        """Keep a receipt. It replaces an older one of the same delivery, unless that one says that it has arrived."""
        before = self._waiting.get(key, receipt)
        self._waiting[key] = before if before.postponement is None else receipt
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
                for key, receipt in newer.items():
                    self.add(key, receipt)
                raise

    async def _note(self, receipts: Sequence[tuple[OutboxKey, Receipt]]) -> None:
        try:
            await self._write(lambda driver: _note(driver, receipts))
        except psycopg.IntegrityError:  # a conversation was deleted just then, and is passed over now
            await self._write(lambda driver: _note(driver, receipts))

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


def _note(driver: Driver, receipts: Sequence[tuple[OutboxKey, Receipt]]) -> None:
    """Store these receipts. Of attempts under a custody that is over, store only that no process has died in them."""
    failed = [key for key, receipt in receipts if receipt.postponement is not None and receipt.fence is not None]
    newest = fences(driver, {key.conversation for key in failed}) if failed else {}
    timely, late = [], []
    for key, receipt in receipts:
        if receipt.postponement is None or receipt.fence in (None, newest.get(key.conversation)):
            timely.append((key, receipt.postponement))
        elif receipt.is_counted:
            late.append(key)
    note(driver, timely)
    for key in late:
        begin_attempt(driver, key, 0)
