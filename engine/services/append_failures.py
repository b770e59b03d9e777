"""Tells a cancelled append from one that a store has cancelled by itself."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from ...persistence.errors import StorageFailed


def raise_append_failure(error: StorageFailed | asyncio.CancelledError) -> NoReturn:
    """Raise the error by which an append failed, from within its `except` clause.

    A driver that cancels its own work, as at a lost connection, raises `CancelledError` although nobody has cancelled
    the task that waits for it. That is a failure of the storage: the event would be lost in the mailbox otherwise.
    """
    task = asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise error
    raise StorageFailed("The store has cancelled the append.") from error
