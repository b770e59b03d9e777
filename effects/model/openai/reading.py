"""Reads the chunks of an answer until it is complete.

An answer is complete when its finish reason has come. What may follow is the usage and the mark of the end, so the
reader waits for these only briefly. Some servers keep the connection open, and some write a finish reason on every
chunk: once more of an answer has come after such a reason, only the end of the stream counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from .events import Chunk
from .stream_assembler import StreamAssembler

AFTER_THE_END = 0.5
"""Seconds without a chunk after which an answer is complete whose finish reason came on a chunk of its own."""

AFTER_A_LAST_PIECE = 0.8
"""Seconds without a chunk after which an answer is complete whose finish reason came together with a piece of it."""


async def read_chunks(
    chunks: AsyncIterator[Chunk], assembler: StreamAssembler, add: Callable[[Chunk], bool]
) -> AsyncIterator[None]:
    """Have `add` add the chunks to the answer, one at a time, until it is complete or an error stands in its place.
    Raises what `add` and, before the answer is complete, the chunks raise."""
    deadline: float | None = None
    is_reason_reliable = True
    while (chunk := await _next(chunks, assembler, deadline)) is not None:
        was_finished = assembler.is_finished
        has_come = add(chunk)
        if assembler.error is not None:
            return
        is_reason_reliable &= not (was_finished and has_come)
        if not assembler.is_finished or not is_reason_reliable:
            deadline = None
        elif deadline is None:
            wait = AFTER_A_LAST_PIECE if has_come else AFTER_THE_END
            deadline = asyncio.get_running_loop().time() + wait
        yield


async def _next(chunks: AsyncIterator[Chunk], assembler: StreamAssembler, deadline: float | None) -> Chunk | None:
    """The next chunk; None if there is none, or if what comes behind a complete answer cannot be read."""
    if not assembler.is_finished:
        return await anext(chunks, None)
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(chunks, None)
    except Exception:
        return None
