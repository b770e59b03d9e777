"""Reads a stream of litellm into an assembler, and tells litellm what was read.

litellm's own reading of a stream is not used, see `stream_chunks`. But an application may have callbacks in litellm,
which count tokens and costs, and litellm estimates a usage that the provider does not tell. Both need litellm to see
the answer. So the reader takes the place of the source of litellm's stream: it reads the real one, and hands litellm
the answer in a few regular chunks: how it began, all the rest, and how it ended.

An answer is complete when its finish reason has come. What may follow is the usage and the mark of the end, so the
reader waits for these only briefly. Some servers keep the connection open, and some write a finish reason on every
chunk: once more of an answer has come after such a reason, only the end of the stream counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

from .stream_assembler import BrokenAnswer, StreamAssembler
from .stream_chunks import Chunk, ChunkReader, Untranslatable, translated

AFTER_THE_END = 0.5
"""Seconds without a chunk after which an answer is complete whose finish reason came on a chunk of its own."""

AFTER_A_LAST_PIECE = 0.8
"""Seconds without a chunk after which an answer is complete whose finish reason came together with a piece of it."""


class AnswerReader:
    """The source of a stream of litellm, `stream`, which it replaces; what it reads goes to `assembler`.

    `response` is litellm's chunk with the usage, when the stream was read.
    """

    def __init__(self, stream: Any, assembler: StreamAssembler, litellm: Any) -> None:
        self.response: Any = None
        self._stream = stream
        self._litellm = litellm
        self._assembler = assembler
        self._chunks = ChunkReader(stream.completion_stream, assembler.go_on)
        self._reports = self._report()
        self._is_passed_on = False
        self._is_reason_reliable = True
        self._fault: Exception | None = None

    async def read(self) -> None:
        """Read until the answer is complete, then close the connection. Raises `BrokenAnswer`, what `show` raises, and
        what the source raises, in litellm's classes."""
        source = self._stream.completion_stream
        self._is_passed_on = source is not None and not isinstance(source, AsyncIterator)
        if not self._is_passed_on:
            self._stream.completion_stream = self
        try:
            async for chunk in self._stream:
                self._look_at(chunk)
        except Exception:
            if self._fault is None:
                raise
        finally:
            await self._stream.aclose()
        if self._fault is not None:
            self._fault.__context__ = None  # litellm's own error about it
            raise self._fault
        if self._is_passed_on:
            self._assembler.finish_reason = self._stream.received_finish_reason
            self._assembler.check(is_marked=False)
        self._assembler.close()

    def _look_at(self, chunk: Any) -> None:
        """Look at what litellm makes of its chunks: the usage, or all that only it can read."""
        if self._is_passed_on:
            self._assembler.add(translated(chunk))
        if getattr(chunk, "usage", None) is not None:
            self.response = chunk

    # --- what litellm sees

    def __aiter__(self) -> AnswerReader:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._reports)
        except BrokenAnswer as fault:
            self._fault = fault
            raise

    async def aclose(self) -> None:
        """Close the connection."""
        await self._reports.aclose()
        await self._chunks.aclose()

    async def _report(self) -> AsyncGenerator[Any]:
        if self._chunks.source is None:  # some providers send nothing before the stream is read
            self._chunks.source = await self._stream.make_call(client=self._litellm.module_level_aclient)
        begun = ""
        try:
            async for _ in self._read():
                if not begun and (begun := self._assembler.text):
                    yield _chunk(begun)
        except Untranslatable as found:
            self._is_passed_on = True
            yield found.chunk
            async for chunk in self._chunks.source:
                yield chunk
            return
        self._assembler.check(is_marked=self._chunks.is_done)
        for chunk in self._rest(begun):
            yield chunk

    def _rest(self, begun: str) -> Iterator[dict[str, Any]]:
        assembler = self._assembler
        if rest := assembler.text[len(begun) :]:
            yield _chunk(rest)
        for place, call in enumerate(assembler.tool_calls()):
            function = {"name": call.name, "arguments": call.arguments}
            yield _chunk(tool_use={"id": call.id, "type": "function", "function": function, "index": place})
        usage = _counts_in(assembler.usage)
        yield _chunk(is_finished=True, finish_reason=assembler.usual_finish_reason, usage=usage)

    # --- reading

    async def _read(self) -> AsyncIterator[None]:
        """Read the chunks until the answer is complete."""
        chunks = self._chunks.chunks()
        deadline: float | None = None
        while (chunk := await self._next(chunks, deadline)) is not None:
            was_finished = self._assembler.is_finished
            has_come = self._add(chunk)
            if self._assembler.error is not None:
                return
            self._is_reason_reliable &= not (was_finished and has_come)
            deadline = self._deadline(deadline, has_come)
            yield

    def _add(self, chunk: Chunk) -> bool:
        try:
            return self._assembler.add(chunk)
        except Exception as fault:  # litellm would take it for one of the connection
            self._fault = fault
            raise

    async def _next(self, chunks: AsyncIterator[Chunk], deadline: float | None) -> Chunk | None:
        """The next chunk; None if there is none, or if what comes behind a complete answer cannot be read."""
        if not self._assembler.is_finished:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(chunks, None)
        except Exception:
            return None

    def _deadline(self, deadline: float | None, has_come: bool) -> float | None:
        if not self._assembler.is_finished or not self._is_reason_reliable:
            return None
        if deadline is not None:
            return deadline
        return asyncio.get_running_loop().time() + (AFTER_A_LAST_PIECE if has_come else AFTER_THE_END)


def _chunk(text: str = "", **fields: Any) -> dict[str, Any]:
    """A chunk in the shape that litellm takes from every provider."""
    empty = {"text": text, "is_finished": False, "finish_reason": "", "usage": None, "index": 0, "tool_use": None}
    return {**empty, **fields}


def _counts_in(usage: Mapping[str, Any]) -> dict[str, int] | None:
    """The tokens that litellm understands; None if they were not told in OpenAI's names."""
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    told = {name: count for name, count in counts.items() if isinstance(count, int)}
    return {**told, "total_tokens": sum(told.values())} if len(told) == len(counts) else None
