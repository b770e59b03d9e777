"""Waits that are bounded by iterations of the event loop, for work that is quick or not worth waiting for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def iterations_until_done(work: Coroutine[Any, Any, None], most: int) -> None:
    """Return when `work` is done, and after `most` iterations of the event loop at the latest; then it is cancelled.

    Unlike a timeout this does not depend on the speed of the machine. Raises what `work` raises.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(most):
            await asyncio.sleep(0)
            if task.done():
                return task.result()
    finally:
        task.cancel()
