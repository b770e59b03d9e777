"""Work on long texts that does not hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 50_000
"""Characters from which on work on a text is done in a thread. Redacting that many takes some 50 ms."""


async def in_thread_if_long(characters: int, work: Callable[[], T], most: int = LONG) -> T:
    """Return what `work` returns. Other conversations go on while it works on a text of more than `most` characters.
    Raises what it raises."""
    return await asyncio.to_thread(work) if characters > most else work()
