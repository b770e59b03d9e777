"""Reads a stream of litellm into an assembler, as chunks of plain data in the shape of OpenAI's chat completions.

A server that speaks OpenAI's protocol, or says so, is read from its bytes: litellm and the client libraries below it
drop what they do not expect. They do not tell whether a stream was complete, take no whole answer where a stream was
asked for, and end at a comment, a mark or a line end that is unusual. The first event shows whether the server speaks
that protocol. If it speaks another, litellm's translator of that provider reads its events, in the form that the
translator knows, and what it makes of them is read here.

An application may have callbacks in litellm, which count tokens and costs, and litellm estimates a usage that the
provider does not tell. Both need litellm to see the answer. So the reader takes the place of the source of litellm's
stream: it reads the real one, and hands litellm the answer in a few regular chunks: how it began, all the rest, and how
it ended.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..openai.events import Chunk, Events, is_openai, lines_in, parsed
from ..openai.failures import BrokenAnswer, MalformedChunk
from ..openai.reading import read_chunks
from ..openai.stream_assembler import BLOCKS, CITED, GROUNDING, StreamAssembler
from .content_blocks import ContentBlocks
from .responses import ResponseEvents, is_of_response


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
            async for _ in read_chunks(self._chunks.chunks(), self._assembler, self._add):
                if not begun and (begun := self._assembler.text):
                    yield _chunk_for_litellm(begun)
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
            yield _chunk_for_litellm(rest)
        for place, call in enumerate(assembler.tool_calls()):
            function = {"name": call.name, "arguments": call.arguments}
            yield _chunk_for_litellm(tool_use={"id": call.id, "type": "function", "function": function, "index": place})
        usage = _counts_in(assembler.usage)
        yield _chunk_for_litellm(is_finished=True, finish_reason=assembler.usual_finish_reason, usage=usage)

    def _add(self, chunk: Chunk) -> bool:
        try:
            return self._assembler.add(chunk)
        except Exception as fault:  # litellm would take it for one of the connection
            self._fault = fault
            raise


def _chunk_for_litellm(text: str = "", **fields: Any) -> dict[str, Any]:
    """A chunk in the shape that litellm takes from every provider."""
    empty = {"text": text, "is_finished": False, "finish_reason": "", "usage": None, "index": 0, "tool_use": None}
    return {**empty, **fields}


def _counts_in(usage: Mapping[str, Any]) -> dict[str, int] | None:
    """The tokens that litellm understands; None if they were not told in OpenAI's names."""
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    told = {name: count for name, count in counts.items() if isinstance(count, int)}
    return {**told, "total_tokens": sum(told.values())} if len(told) == len(counts) else None


_REASONS: tuple[tuple[str | int, ...], ...] = (
    ("candidates", 0, "finishReason"),
    ("delta", "stop_reason"),
    ("done_reason",),
)
"""Where the protocols of Gemini, Anthropic and Ollama write the finish reason."""


class Untranslatable(Exception):
    """A chunk is no data: only litellm can read the stream, from this chunk on."""

    def __init__(self, chunk: Any) -> None:
        super().__init__("a chunk is no data")
        self.chunk = chunk


class ChunkReader:
    """The chunks of one stream of litellm, read from its `source`. `is_done` says that the server has marked the end
    of the stream. `goes_on` is called for a piece of a call that becomes a chunk when all of the call has come."""

    def __init__(self, source: Any, goes_on: Callable[[], None]) -> None:
        self.source = source
        self._goes_on = goes_on
        self.is_done: bool = False
        self._reason: str | None = None
        self._has_candidates = False
        self._regular = RegularEvents()
        self._grounding: dict[str, Any] = {}

    async def chunks(self) -> AsyncIterator[Chunk]:
        """The chunks as they come. Raises `MalformedChunk`, `Untranslatable`, and what the source raises."""
        lines = _lines_of(self.source)
        if lines is not None:
            events, first, found = Events(), list[str](), list[Chunk]()
            async for line in lines:
                first.append(line)
                if (found := list(events.add(line))) or events.is_done:
                    break
            found = found or list(events.end())
            if (read := self._reader_of(found)) is not None:
                async for chunk in self._read(read, self._events(events, found, lines)):
                    yield chunk
                return
            self.source.streaming_response = self._for_translator(_behind(first, lines))
        async for chunk in self.source:
            if chunk is not None:  # a line that holds nothing
                yield self._with_reason(translated(chunk))

    def _reader_of(self, found: Sequence[Chunk]) -> Callable[[Chunk], Iterable[Chunk]] | None:
        """What reads the events of a server whose first one is this; None for one that litellm's translator reads."""
        if found and is_of_response(found[0]):
            return ResponseEvents().chunks_of
        is_plain = not hasattr(self.source, "streaming_response") or not found or is_openai(found[0])
        return (lambda event: (event,)) if is_plain else None

    async def _read(
        self, read: Callable[[Chunk], Iterable[Chunk]], events: AsyncIterator[Chunk]
    ) -> AsyncIterator[Chunk]:
        async for event in events:
            for chunk in read(event):
                yield chunk

    async def _events(self, events: Events, first: list[Chunk], lines: AsyncIterator[str]) -> AsyncIterator[Chunk]:
        """The events of a server that speaks OpenAI's protocol: the first ones, then those in the lines."""
        for event in first:
            yield event
        while not events.is_done and (line := await anext(lines, None)) is not None:
            for event in events.add(line):
                yield event
        self.is_done = events.is_done
        for event in events.end() if not events.is_done else ():
            yield event

    async def _for_translator(self, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        """The lines for litellm's translator: as they came where nothing is unusual, else one for each event. The
        finish reasons in them are remembered. Raises `BrokenAnswer` for an error in place of an event."""
        events, regular = Events(), self._regular
        async for line in lines:
            for written in self._rewritten(events, regular, line):
                yield written
        for event in events.end():
            for made in regular.made_of(event):
                yield self._line_of(made)

    def _rewritten(self, events: Events, regular: RegularEvents, line: str) -> Iterator[str]:
        is_whole = not events.is_collecting
        found = list(events.add(line))
        if not found and is_whole and not events.is_collecting:
            yield line
        for event in found:
            if _found(event, ("delta", "partial_json")):
                self._goes_on()
            for made in regular.made_of(event):
                written = self._line_of(made)
                yield line if made is event and is_whole and len(found) == 1 else written

    def _line_of(self, event: Chunk) -> str:
        self._reason = next(filter(None, (_found(event, path) for path in _REASONS)), self._reason)
        if "candidates" in event:
            self._has_candidates = True
            grounding = _found(event, ("candidates", 0, "groundingMetadata"))
            self._grounding.update(grounding if isinstance(grounding, Mapping) else {})
        return f"data: {json.dumps(event)}"

    def _with_reason(self, chunk: Chunk) -> Chunk:
        """The chunk with the finish reason that the server wrote. litellm words it anew, and marks each candidate of
        Gemini's as finished."""
        choices = chunk.get("choices")
        if not choices or not (self._reason or self._has_candidates):
            return chunk
        reason, self._reason = self._reason, None
        if reason and (kept := self._kept()):
            first, *others = choices
            choices = [{**first, "delta": {**(first.get("delta") or {}), **kept}}, *others]
        return {**chunk, "choices": [{**choice, "finish_reason": reason} for choice in choices]}

    def _kept(self) -> dict[str, Any]:
        """What litellm's translators do not pass on of the answer that ends now."""
        blocks = self._regular.blocks
        kept = {BLOCKS: blocks.content, CITED: [*blocks.citations], GROUNDING: self._grounding}
        return {name: value for name, value in kept.items() if value}

    async def aclose(self) -> None:
        """Close the connection."""
        inner = getattr(self.source, "streaming_response", None)
        for source in (self.source, getattr(self.source, "response", None), getattr(inner, "response", None)):
            close = getattr(source, "aclose", None) or getattr(source, "close", None)
            if close is not None and (closing := close()) is not None:
                await closing


def _found(value: Any, path: Iterable[str | int]) -> Any:
    """The value at the end of a path of names and places; None if there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


# --- lines


def _lines_of(source: Any) -> AsyncIterator[str] | None:
    """The lines that a source of litellm would read, if they can be had."""
    lines = getattr(source, "streaming_response", None)
    response: Any = getattr(source, "response", None) or getattr(source, "http_response", None)
    response = response or getattr(lines, "response", None)
    if hasattr(response, "aiter_bytes"):
        return lines_in(response.aiter_bytes())
    return aiter(lines) if isinstance(lines, AsyncIterator) else None


async def _behind(first: Iterable[str], rest: AsyncIterator[str]) -> AsyncIterator[str]:
    for line in first:
        yield line
    async for line in rest:
        yield line


# --- what litellm has translated


def translated(chunk: Any) -> Chunk:
    """A chunk of litellm as plain data. Raises `Untranslatable`. `Pure.`"""
    if isinstance(chunk, Mapping) and "is_finished" in chunk:
        return _of_generic(chunk)
    if isinstance(chunk, Mapping):
        return chunk
    if hasattr(chunk, "choices"):
        plain: Chunk = _plain(chunk)
        return plain
    raise Untranslatable(chunk)


def _of_generic(chunk: Mapping[str, Any]) -> Chunk:
    """litellm's other shape of a chunk: one text, or one fragment of a call."""
    call = chunk.get("tool_use")
    delta = {"content": chunk.get("text"), "tool_calls": None if call is None else [_plain(call)]}
    fields = chunk.get("provider_specific_fields")
    if isinstance(fields, Mapping) and fields:
        delta["provider_specific_fields"] = fields
    reason = chunk.get("finish_reason") if chunk["is_finished"] else None
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": _plain(chunk.get("usage"))}


def _plain(value: Any) -> Any:
    """The fields of an object of litellm or a client library. Most of them are extra fields, which pydantic finds as
    attributes only after it has looked everywhere else."""
    match value:
        case str() | int() | float() | None:
            return value
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _ if hasattr(value, "__dict__"):
            fields = {**vars(value), **(getattr(value, "model_extra", None) or {})}
            return {name: _plain(item) for name, item in fields.items() if not name.startswith("_")}
        case _:
            return value


# --- the events of other protocols

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class RegularEvents:
    """The events of one stream, in the form that litellm's translators of Anthropic's and Gemini's protocols read.

    The translators follow the documentation. Servers that speak these protocols, gateways above all, write more than
    that: a whole message where a stream was asked for, a call whose arguments stand in its first event and never come
    in pieces, two blocks at a time, a call without arguments. A translator drops what it does not expect there, and a
    call would run without its arguments or with those of another one. So a call is held until all of it has come.
    """

    def __init__(self) -> None:
        self.blocks: ContentBlocks = ContentBlocks()
        self._held: dict[object, list[Chunk]] = {}

    def made_of(self, event: Chunk) -> Iterable[Chunk]:
        """What this event becomes: itself in most cases. Raises `BrokenAnswer` for an error in place of an event."""
        if error := event.get("error"):
            raise BrokenAnswer("server_error", "the stream holds an error", error)
        return () if self.blocks.note(event) else self._regular(event)

    def _regular(self, event: Chunk) -> Iterable[Chunk]:
        match event.get("type"):
            case "message":
                return [one for one in _streamed(event) if not self.blocks.note(one)]
            case "content_block_start":
                return [*self._ended(event.get("index")), *self._begun(event)]
            case "content_block_delta" if event.get("index") in self._held:
                self._held[event.get("index")].append(event)
                return ()
            case "content_block_stop" if event.get("index") in self._held:
                return [*self._ended(event.get("index")), event]
            case "message_delta" | "message_stop":
                return [*(one for index in list(self._held) for one in self._ended(index)), event]
            case _:
                return (_with_arguments(event) if "candidates" in event else event,)

    def _begun(self, event: Chunk) -> Iterable[Chunk]:
        block = event.get("content_block")
        if isinstance(block, Mapping) and block.get("type") in _CALLS:
            self._held[event.get("index")] = [event]
            return ()
        is_sealed = isinstance(block, Mapping) and block.get("type") == "thinking"
        return _whole_thinking(event) if is_sealed else (event,)

    def _ended(self, index: object) -> Iterable[Chunk]:
        """The call that was held under this index."""
        held = self._held.pop(index, None)
        return () if held is None else _whole_call(held)


def _whole_call(events: list[Chunk]) -> list[Chunk]:
    """The events of a call, in which its arguments come in pieces. Raises `MalformedChunk` if its first event and its
    pieces tell different arguments."""
    start, *pieces = events
    given = start["content_block"].get("input")
    written = "".join(str(_mapping_in(piece, "delta").get("partial_json") or "") for piece in pieces)
    if not given or (isinstance(given, Mapping) and not any(given.values()) and written):
        return events
    if not written.strip() or written.strip() == "{}":
        return [start, _delta_event(start.get("index"), "input_json_delta", partial_json=_json_of(given))]
    if parsed(written, written) != (parsed(given, given) if isinstance(given, str) else given):
        raise MalformedChunk
    return events


def _whole_thinking(start: Chunk) -> Iterator[Chunk]:
    """The first event of a block of thinking, and what it tells already as the pieces that tell it."""
    block, index = start["content_block"], start.get("index")
    yield {**start, "content_block": {**block, "thinking": "", "signature": ""}}
    if text := block.get("thinking"):
        yield _delta_event(index, "thinking_delta", thinking=text)
    if signature := block.get("signature"):
        yield _delta_event(index, "signature_delta", signature=signature)


def _streamed(message: Chunk) -> Iterator[Chunk]:
    """The events in which this message of Anthropic's would have streamed."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    for index, block in enumerate(blocks):
        if not isinstance(block, Mapping):
            raise MalformedChunk
        start = {"type": "content_block_start", "index": index, "content_block": block}
        if block.get("type") in _CALLS:
            yield from _whole_call([start])
        elif block.get("type") == "thinking":
            yield from _whole_thinking(start)
        else:
            yield start
        yield {"type": "content_block_stop", "index": index}
    ending = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": ending, "usage": message.get("usage") or {}}
    yield {"type": "message_stop"}


def _with_arguments(event: Chunk) -> Chunk:
    """Gemini's event, in which each call has arguments."""
    candidates = event["candidates"]
    bare = [part for part in _parts_in(candidates) if part.get("functionCall") and _has_none(part["functionCall"])]
    if not bare:
        return event
    copy: Chunk = json.loads(json.dumps(event))
    for part in _parts_in(copy["candidates"]):
        if part.get("functionCall") and _has_none(part["functionCall"]):
            part["functionCall"]["args"] = {}
    return copy


def _has_none(call: Any) -> bool:
    return isinstance(call, Mapping) and call.get("args") is None


def _parts_in(candidates: Any) -> Iterator[Any]:
    for candidate in candidates if isinstance(candidates, list) else ():
        parts = _mapping_in(candidate, "content").get("parts") if isinstance(candidate, Mapping) else None
        yield from (part for part in parts or () if isinstance(part, Mapping))


def _mapping_in(event: Chunk, name: str) -> Chunk:
    part = event.get(name)
    return part if isinstance(part, Mapping) else {}


def _delta_event(index: object, kind: str, **fields: Any) -> Chunk:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def _json_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
